/** Messages as text: one with its attempts and its timeline, rows of a list, and why one waits. Pure. */
import type * as wire from '../../api/message.ts'
import { linesText, localTime, preciseTime, sheetText, type Columns } from '../shared/text.ts'

export const MESSAGE_COLUMNS: Columns<wire.ListedMessageJson> = {
  CREATED: (message) => localTime(message.created_at),
  STATE: ({ state }) => state,
  RECIPIENT: ({ recipient }) => recipient,
  FROM: ({ from }) => from,
  SUBJECT: ({ subject }) => subject,
  ID: (message) => message.message_id,
}

export interface ShownMessage extends wire.MessageJson {
  events: wire.EventJson[]
  /** Left out: not asked for. */
  transcript?: wire.TranscriptJson[]
}

export function messageReport(message: ShownMessage): string {
  const { bounce, next_attempt_at: nextAt, complained_at: complainedAt } = message
  const tags = Object.entries(message.tags).map(([key, value]) => `${key}:${value}`)
  const head = sheetText(`${message.message_id}  ${message.state}`, [
    ['to', message.recipient],
    ['from', message.from],
    ['subject', message.subject],
    ['batch', message.batch_id],
    ['provider', message.isp],
    ['sent from', [message.ip, `pool ${message.ip_pool}`].filter((text) => text !== null).join(', ')],
    ['tags', tags.join(', ')],
    ['accepted', preciseTime(message.created_at)],
    ['planned for', message.send_at === null ? null : preciseTime(message.send_at)],
    ['next attempt', nextAt === null ? null : `${preciseTime(nextAt)}, until ${localTime(message.expires_at)}`],
    ['bounce', bounce === null ? null : `${bounce.type}, ${bounce.category}, ${bounce.code}: ${bounce.description}`],
    ['complaint', complainedAt === null ? null : preciseTime(complainedAt)],
    ['opens', countText(message.opens, message.machine_opens)],
    ['clicks', countText(message.clicks, message.machine_clicks)],
    [
      'duplicate',
      message.uncertain ? 'possible: the answer to a whole message was lost, or a backup was restored' : null,
    ],
    ['retry of', message.retry_of],
  ])
  return [
    head,
    ...section('attempts', message.attempts.flatMap(attemptLines)),
    ...section('timeline', message.events.map(eventLine)),
    ...(message.transcript ?? []).flatMap((each) => section(`dialogue of attempt ${each.n}`, dialogueLines(each))),
  ].join('')
}

/** `when  kind  what is special`. */
export function eventLine({ timestamp, event, data }: wire.EventJson): string {
  const facts = Object.entries(data)
    .filter(([name]) => name !== 'message_id' && name !== 'recipient')
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
  return [preciseTime(timestamp), event, ...facts].join('  ')
}

export function explanationReport(explanation: wire.ExplanationJson): string {
  const { waiting_for: waitingFor, next_attempt_at: nextAt, similar } = explanation
  const head = sheetText(`${explanation.message_id}  ${explanation.state}`, [
    ['why', explanation.summary],
    ['waits for', waitingFor],
    ['next attempt', nextAt === null ? null : preciseTime(nextAt)],
    ['reply', explanation.reply],
    ['category', explanation.category],
    ['rule', explanation.rule],
    ['similar', similar === null ? null : similarText(similar)],
    ...explanation.advice.map((text) => ['advice', text] as const),
  ])
  const checks = explanation.checks.map(
    ({ check, status, seen }) => `${status.padEnd(5)} ${check}${seen === null ? '' : `: ${seen}`}`,
  )
  return [head, ...section('checks', checks)].join('')
}

function similarText({ isp, last_hour: { attempts, deferred } }: NonNullable<wire.ExplanationJson['similar']>): string {
  return `${isp}, last hour: ${attempts} attempts, ${deferred} of them deferred`
}

function countText(people: number, machines: number): string | null {
  if (people === 0 && machines === 0) return null
  return machines === 0 ? String(people) : `${people}, and ${machines} by machines`
}

function attemptLines({ n, at, ip, mx, tls, result, reply, duration_ms: duration }: wire.AttemptJson): string[] {
  // Without a host there was no connection.
  const road = [ip, mx, mx === null ? null : (tls ?? 'no TLS')].filter((text) => text !== null).join(', ')
  const line = `${n}  ${preciseTime(at)}  ${result}  ${duration} ms  ${road}`.trimEnd()
  return reply === '' ? [line] : [line, `   ${reply}`]
}

function dialogueLines({ dialogue }: wire.TranscriptJson): string[] {
  return dialogue === null ? ['not kept, or no longer'] : dialogue.trimEnd().split(/\r?\n/)
}

/** Nothing for an empty one. */
function section(title: string, lines: readonly string[]): string[] {
  if (lines.length === 0) return []
  return [linesText(['', `  ${title}`, ...lines.map((line) => `    ${line}`)])]
}
