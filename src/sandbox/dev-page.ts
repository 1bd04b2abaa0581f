/**
 * `GET /dev`: one plain page over the captured messages and the webhook deliveries.
 *
 * No script at all, no style or image from elsewhere; everything that came by mail or POST is escaped.
 */
import type { HookDelivery } from './webhook-inspector.ts'
import type { InboxEntry } from './inbox.ts'

/** The page's own style and nothing else. */
export const PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

const STYLE = `
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #1a1a1a; background: #fff }
  h1 { font-size: 1.3rem } h2 { font-size: 1.05rem; margin-top: 2rem }
  table { border-collapse: collapse; width: 100% }
  th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ddd; overflow-wrap: anywhere }
  code { font-family: ui-monospace, monospace; font-size: .9em }
`

export function devPage(facts: { baseUrl: string; mails: InboxEntry[]; deliveries: HookDelivery[] }): string {
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Posthorn sandbox</title><style>${STYLE}</style></head>
<body>
<h1>Posthorn sandbox</h1>
<p>Nothing leaves this machine. The API is at <code>${escape(facts.baseUrl)}/v1</code>. Reload to see what is new.</p>
<h2>Captured messages</h2>
${table(['Received', 'From', 'To', 'Subject', 'DKIM', 'Sender', ''], facts.mails.map(mailRow))}
<h2>Webhook deliveries</h2>
${table(['Received', 'Hook', 'Attempt', 'Signature', 'Answer', 'Body'], facts.deliveries.map(deliveryRow))}
</body>
</html>
`
}

function mailRow(entry: InboxEntry): string[] {
  const { header, envelope, dkim } = entry
  const parts = ['html', 'text', 'raw'].map((part) => `<a href="/dev/inbox/${escape(entry.id)}/${part}">${part}</a>`)
  return [
    time(entry.receivedAt), escape(header.from ?? envelope.from), escape(envelope.to.join(', ')),
    escape(header.subject), escape(dkim.result), escape(`${entry.remoteAddress} ${entry.ehloName}`), parts.join(' '),
  ]
}

function deliveryRow(delivery: HookDelivery): string[] {
  return [
    time(delivery.receivedAt), escape(delivery.name), escape(String(delivery.attempt ?? '')),
    escape(delivery.signature), escape(String(delivery.answer)), `<code>${escape(delivery.body.slice(0, MOST_BODY_CHARACTERS))}</code>`,
  ]
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
