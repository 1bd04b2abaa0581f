/**
 * What happens now, as the server tells it (`GET /v1/webhooks/stream`): the browser asks again by itself and says what
 * it saw last, so that nothing is missed. A connection for as long as somebody listens.
 */
import { signal } from '@preact/signals'
import { pathWith } from './api.ts'
import { useEffect } from './html.ts'

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

/** `messageId` null: of all messages. `listener` null: enough was heard. */
export function useLive(messageId: string | null, listener: ((event: LiveEvent) => void) | null): void {
  useEffect(() => {
    if (listener === null) return
    const source = new EventSource(
      `/v1${pathWith('/webhooks/stream', { events: KINDS.join(','), message_id: messageId })}`,
    )
    source.onopen = () => (isLive.value = true)
    // Closed for good: whoever may not listen is told by the screens.
    source.onerror = () => (isLive.value = source.readyState === EventSource.CLOSED)
    const tell = ({ data }: MessageEvent<string>): void => listener(JSON.parse(data) as LiveEvent)
    for (const kind of KINDS) source.addEventListener(kind, tell)
    return () => {
      source.close()
      isLive.value = true
    }
  }, [messageId, listener])
}
