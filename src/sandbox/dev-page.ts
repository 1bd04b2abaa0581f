/**
 * `GET /dev`: one plain page over application time, captured messages, webhook deliveries and the replies that were
 * set.
 *
 * No script at all, no style or image from elsewhere; everything that came by mail or POST is escaped.
 */
import { SECOND } from '../base/clock.ts'
import { durationText } from '../config/settings/field-types.ts'
import type { InboxEntry } from './inbox.ts'
import type { ReplyRule } from '../capture/replies.ts'
import { ruleView } from './reply-routes.ts'
import type { HookDelivery } from './webhook-inspector.ts'

/** The page's own style and nothing else. */
export const PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

const STYLE = `
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #1a1a1a; background: #fff }
  h1 { font-size: 1.3rem } h2 { font-size: 1.05rem; margin-top: 2rem }
  table { border-collapse: collapse; width: 100% }
  th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ddd; overflow-wrap: anywhere }
  code { font-family: ui-monospace, monospace; font-size: .9em }
`

interface DevPageFacts {
  baseUrl: string
  mails: InboxEntry[]
  deliveries: HookDelivery[]
  /** `now` in Unix milliseconds, `ahead` of real time in milliseconds. */
  time: { now: number; speed: number; ahead: number }
  rules: ReplyRule[]
}

export function devPage(facts: DevPageFacts): string {
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Sternpost sandbox</title><style>${STYLE}</style></head>
<body>
<h1>Sternpost sandbox</h1>
<p>Nothing leaves this machine. The API is at <code>${escape(facts.baseUrl)}/v1</code>. Reload to see what is new.</p>
<h2>Clock</h2>
<p>Application time is ${timeText(facts.time)}.
Change it: <code>curl -X POST ${escape(facts.baseUrl)}/dev/clock -d '{"advance":"2h"}'</code> or
<code>'{"speed":60}'</code>.</p>
<h2>Captured messages</h2>
${table(['Received', 'From', 'To', 'Subject', 'DKIM', 'Sender', ''], facts.mails.map(mailRow))}
<h2>Webhook deliveries</h2>
${table(['Received', 'Hook', 'Attempt', 'Signature', 'Answer', 'Body'], facts.deliveries.map(deliveryRow))}
<h2>Replies that were set</h2>
${table(['To', 'Stage', 'Reply', 'Times left', 'Probability'], facts.rules.map(ruleRow))}
</body>
</html>
`
}

function timeText({ now, speed, ahead }: DevPageFacts['time']): string {
  const wholeSeconds = Math.floor(ahead / SECOND) * SECOND
  const difference = wholeSeconds === 0 ? 'as on the wall' : `${durationText(wholeSeconds)} ahead`
  return `${time(now)}, ${difference}, speed ${speed}`
}

function ruleRow(rule: ReplyRule): string[] {
  const { to, stage, reply, times, probability } = ruleView(rule)
  const cells = [to, stage, typeof reply === 'string' ? reply : JSON.stringify(reply), times ?? 'all', probability]
  return cells.map((cell) => escape(String(cell)))
}

function mailRow(entry: InboxEntry): string[] {
  const { header, envelope, dkim, remoteAddress, ehloName } = entry
  const parts = ['html', 'text', 'raw'].map((part) => `<a href="/dev/inbox/${escape(entry.id)}/${part}">${part}</a>`)
  const [from, to, sender] = [header.from ?? envelope.from, envelope.to.join(', '), `${remoteAddress} ${ehloName}`]
  const facts = [from, to, header.subject, dkim.result, sender].map(escape)
  return [time(entry.receivedAt), ...facts, parts.join(' ')]
}

function deliveryRow(delivery: HookDelivery): string[] {
  const { receivedAt, name, attempt, signature, answer, body } = delivery
  const facts = [name, attempt ?? '', signature, answer].map((fact) => escape(String(fact)))
  return [time(receivedAt), ...facts, `<code>${escape(body.slice(0, MOST_BODY_CHARACTERS))}</code>`]
}

/** The rest is in `/dev/hooks/{name}`. */
const MOST_BODY_CHARACTERS = 500

/** Cells are HTML already. */
function table(heads: string[], rows: string[][]): string {
  if (rows.length === 0) return '<p>Nothing yet.</p>'
  const cells = (tag: string, values: string[]): string => values.map((value) => `<${tag}>${value}</${tag}>`).join('')
  const lines = rows.map((row) => `<tr>${cells('td', row)}</tr>`)
  return `<table><thead><tr>${cells('th', heads)}</tr></thead><tbody>${lines.join('\n')}</tbody></table>`
}

function time(milliseconds: number): string {
  return escape(new Date(milliseconds).toISOString())
}

const ENTITIES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }

function escape(text: string): string {
  // The five characters that mean something in HTML text and attributes.
  return text.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? character)
}
