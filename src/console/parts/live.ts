/**
 * What happens now, as the server tells it (`GET /v1/webhooks/stream`): the browser asks again by itself and says what
 * it saw last, so that nothing is missed. One connection for the whole page, and none while nobody listens.
 */
import { signal } from '@preact/signals'
import { useEffect } from './html.ts'

/** False: the connection is lost, and is tried again. */
export const isLive = signal(true)

interface LiveEvent {
  event: string
  timestamp: number
  data: Record<string, unknown>
}

type Listener = (event: LiveEvent) => void

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
const listeners = new Set<Listener>()
let source: EventSource | null = null

function open(): void {
  source = new EventSource(`/v1/webhooks/stream?events=${KINDS.join(',')}`)
  source.onopen = () => (isLive.value = true)
  source.onerror = () => (isLive.value = false)
  for (const kind of KINDS) source.addEventListener(kind, tell)
}

function tell({ data }: MessageEvent<string>): void {
  const event = JSON.parse(data) as LiveEvent
  for (const listener of listeners) listener(event)
}

export function useLive(listener: Listener): void {
  useEffect(() => {
    listeners.add(listener)
    if (source === null) open()
    return () => {
      listeners.delete(listener)
      if (listeners.size > 0) return
      source?.close()
      source = null
    }
  }, [listener])
}
