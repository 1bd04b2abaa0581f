/**
 * What an app does with the generated client: a batch, then a lookup; prints the message ids as JSON. Compiled strictly
 * against the generated types: a wrong name here is an error of the document.
 */
import createClient from 'openapi-fetch'
import type { paths } from './sternpost-api.js'

declare const process: { argv: string[] }

const [baseUrl = '', key = '', to = ''] = process.argv.slice(2)
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } })

const batch = await client.POST('/email/batch', {
  body: {
    from: 'Acme <orders@acme.test>',
    subject: 'Order {{number}}',
    html: '<p>Hello {{name}}</p>',
    recipients: [{ to, name: 'Ada', number: 1 }, { to, name: 'Bob', number: 2 }, { to: 'nobody' }],
  },
})
if (batch.data === undefined) throw new Error(`refused: ${batch.error.error.code} ${batch.error.error.details}`)

const ids: string[] = []
for (const result of batch.data.results) {
  if (result.success) ids.push(result.message_id)
}
const lookups = await Promise.all(
  ids.map((id) => client.GET('/email/{message_id}', { params: { path: { message_id: id } } })),
)
const subjects = lookups.map(({ data }) => data?.data.subject ?? null)
console.log(JSON.stringify({ accepted: batch.data.accepted, rejected: batch.data.rejected, ids, subjects }))
