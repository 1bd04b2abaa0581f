/** GET /stats (http/README.md "Statistics"): what happened to messages, grouped, as JSON or as CSV. */
import { z } from 'zod'
import * as wire from '../../api/statistics.ts'
import { snakeFields } from '../../api/names.ts'
import { toUnixSeconds } from '../../base/clock.ts'
import { listSchema } from '../../api/envelope.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import { OK, successList } from '../exchange/answer.ts'
import { routesOf, type Route } from '../exchange/route.ts'

const { get } = routesOf('stats')

type FoundRow = Awaited<ReturnType<HttpFeatures['statistics']['find']>>[number]
type Rows = (wire.StatisticsRowJson | z.infer<typeof wire.eventCountSchema>)[]

export function statisticsRoutes({ statistics }: Pick<HttpFeatures, 'statistics'>): Route[] {
  return [
    get('/stats', {
      summary: 'What happened to messages, by hour or day; CSV with Accept: text/csv.',
      query: wire.statisticsQuerySchema,
      ok: {
        status: OK,
        schema: listSchema(z.union([wire.statisticsRowSchema, wire.eventCountSchema])),
        otherType: 'text/csv',
      },
      async handler(request, { groupBy, interval, after, before }) {
        const dimension = groupBy === null || groupBy === 'all' || groupBy === 'event' ? null : groupBy
        const asked = { dimension, interval: interval ?? 'day', after, before } as const
        const found = await statistics.find(asked, request.principal.reach)
        const rows: Rows = groupBy === 'event' ? found.flatMap(eventCounts) : found.map(rowJson)
        if (request.headers.accept?.startsWith('text/csv') !== true) return successList(rows)
        return { status: OK, body: csvText(rows), contentType: 'text/csv; charset=utf-8' }
      },
    }),
  ]
}

function rowJson({ name, at, ...counts }: FoundRow): wire.StatisticsRowJson {
  return { key: name === '' ? 'all' : name, at: toUnixSeconds(at), ...snakeFields(counts) }
}

/** A row for each kind that happened. */
function eventCounts({ name: _name, at, ...counts }: FoundRow) {
  return Object.entries(snakeFields(counts))
    .filter(([, count]) => count > 0)
    .map(([key, count]) => ({ key, at: toUnixSeconds(at), count }))
}

/** RFC 4180. What a spreadsheet would take for a formula is made a text. */
function csvText(rows: Rows): string {
  const columns = Object.keys(rows[0] ?? { key: '', at: 0 })
  const lines = rows.map((row) => Object.values(row).map(csvField).join(','))
  return [columns.join(','), ...lines, ''].join('\r\n')
}

function csvField(value: string | number): string {
  const text = String(value)
  const harmless = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless
}
