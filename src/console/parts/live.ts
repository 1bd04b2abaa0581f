/**
 * What happens now, as the server tells it (`GET /v1/webhooks/stream`), for as long as somebody listens and the page is
 * seen. The browser asks again by itself when the connection is lost, and says what it saw last; what the server does
 * not know any more is not told. So each opening asks anew for what may have been missed.
 */
import { signal } from '@preact/signals'
import { ask, pathWith } from './api.ts'
import { useEffect } from './html.ts'
import { whileSeen } from './seen.ts'
import { maySee, who, type Who } from './who.ts'

/** False: the connection is lost, and is tried again. */
export const isLive = signal(true)

interface LiveEvent {
  event: string
  timestamp: number
  data: Record<string, unknown>
}

/** The stream names each event by its kind. */
const KINDS = [
  'email.delivered',
  'email.bounced',
  'email.complained',
  'email.opened',
  'email.clicked',
  'email.deferred',
  'email.suppressed',
  'email.canceled',
]

const REFUSED_MILLISECONDS = 5_000

/**
 * `messageId` null: of all messages. `listener` null: enough was heard. `onOpen`: what happened until now may not have
 * been told. Does nothing for whom the server would tell nothing.
 */
export function useLive(
  messageId: string | null,
  listener: ((event: LiveEvent) => void) | null,
  onOpen: () => void,
): void {
  const isAllowed = maySee('webhooks')
  useEffect(() => {
    if (listener === null || !isAllowed) return
    const url = `/v1${pathWith('/webhooks/stream', { events: KINDS.join(','), message_id: messageId })}`
    return whileSeen(() => follow(url, listener, onOpen))
  }, [isAllowed, messageId, listener, onOpen])
}

/** Returns what ends it. */
function follow(url: string, listener: (event: LiveEvent) => void, onOpen: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined
  let source: EventSource
  const tell = ({ data }: MessageEvent<string>): void => listener(JSON.parse(data) as LiveEvent)
  const open = (): void => {
    source = new EventSource(url)
    source.onopen = () => {
      isLive.value = true
      onOpen()
    }
    source.onerror = () => {
      isLive.value = false
      // Refused, which the browser takes for good. Whoever is logged out, or may not hear it, learns it by the question.
      if (source.readyState !== EventSource.CLOSED) return
      timer = setTimeout(open, REFUSED_MILLISECONDS)
      ask<Who>('/console/session').then(
        (me) => (who.value = me),
        () => undefined,
      )
    }
    for (const kind of KINDS) source.addEventListener(kind, tell)
  }
  open()
  return () => {
    clearTimeout(timer)
    source.close()
    isLive.value = true
  }
}
