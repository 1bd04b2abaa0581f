/** The examples of `examples.yaml`, as answers have them. */
import { readFileSync } from 'node:fs'
import { parse } from 'yaml'
import type { WebhookEventKind } from '../../mail/event.ts'

interface RouteExamples {
  /** Of the body. */
  request?: unknown
  /** Of a success. */
  response?: unknown
}

interface WrittenExamples {
  routes: Record<string, RouteExamples & { data?: unknown; page?: unknown }>
  events: Partial<Record<WebhookEventKind, object>>
}

const written: WrittenExamples = parse(readFileSync(new URL('./examples.yaml', import.meta.url), 'utf8'), {
  merge: true,
})

export const EXAMPLES: Record<string, RouteExamples> = Object.fromEntries(
  Object.entries(written.routes).map(([route, { data, page, ...given }]) => {
    if (data !== undefined) return [route, { ...given, response: { success: true, data } }]
    if (page === undefined) return [route, given]
    return [route, { ...given, response: { success: true, data: [page], has_more: false, next_cursor: null } }]
  }),
)

export const WEBHOOK_EXAMPLES = written.events
