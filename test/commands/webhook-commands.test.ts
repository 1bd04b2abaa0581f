/**
 * `sternpost webhook …` against the real interface.
 */
import t from 'tap'
import { ask } from '../http/api-client.ts'
import { sendOne } from '../http/api-server.ts'
import { webhookClaim } from '../store/conformance-case.ts'
import { commandServer } from './command-server.ts'

interface Endpoint {
  id: string
  secret?: string
}

t.test('add, list, show and remove', async (t) => {
  const { run } = await commandServer(t)
  t.match(await run('webhook', 'list'), { code: 0, stdout: '', stderr: /sternpost webhook add https/ })
  const plain = await run('webhook', 'add', 'https://127.0.0.1/hooks')
  t.match(plain, { code: 0, stdout: /^wh_\w+\nwhsec_[\w-]{43}\n$/ })
  t.match(plain.stderr, /only time[\s\S]*sternpost webhook test wh_/)
  const events = ['--event', 'email.bounced', '--event', 'email.clicked']
  const flags = [...events, '--include', 'tags', '--description', 'for the shop']
  const given = await run('webhook', 'add', 'https://127.0.0.1/x', ...flags, '--secret', 'a'.repeat(20), '--json')
  const added: Endpoint = JSON.parse(given.stdout)
  t.match(added, { events: ['email.bounced', 'email.clicked'], include: ['tags'], description: 'for the shop' })
  t.equal(added.secret, undefined, 'a given secret is not repeated')
  const { stdout } = await run('webhook', 'list')
  t.match(
    stdout
      .trimEnd()
      .split('\n')
      .map((line) => line.split('\t')),
    [
      [added.id, 'enabled', '0', '0', 'never', 'never', 'https://127.0.0.1/x'],
      [/^wh_/, 'enabled'],
    ],
  )
  const shown = await run('webhook', 'show', added.id)
  t.match(shown.stdout, `${added.id}  enabled\n  url           https://127.0.0.1/x\n`)
  t.match(shown.stdout, /\n {2}events +email\.bounced, email\.clicked\n[\s\S]*\n {2}dead letters +0\n$/)
  const asked = await run('webhook', 'remove', added.id)
  t.match(asked, { code: 64, stdout: 'https://127.0.0.1/x: waiting deliveries, would be dropped: 0\n' })
  t.match(asked.stderr, `sternpost webhook remove ${added.id} --yes`)
  t.match(await run('webhook', 'remove', added.id, '--yes'), { code: 0, stdout: 'https://127.0.0.1/x is removed\n' })
  t.match(await run('webhook', 'show', added.id), { code: 1, stderr: /Not found/ })
  const lost = await run('webhook', 'add', 'https://127.0.0.1/x', '--event', 'email.lost')
  t.match(lost, { code: 1, stderr: /events\[0\]/ })
})

t.test('an endpoint that is disabled is enabled again, as a refused replay says', async (t) => {
  const { run, api } = await commandServer(t)
  const { id }: Endpoint = JSON.parse((await run('webhook', 'add', 'https://127.0.0.1/x', '--json')).stdout)
  const disabled = await ask(api.port, {
    method: 'PATCH',
    path: `/v1/webhooks/${id}`,
    body: JSON.stringify({ status: 'disabled' }),
  })
  t.equal(disabled.status, 200)
  t.match((await run('webhook', 'show', id)).stdout, `${id}  disabled (manual)\n`)
  const refused = await run('webhook', 'replay', '--endpoint', id, '--since', '1d')
  t.match(refused, { code: 1, stderr: `sternpost webhook enable ${id}` })
  const enabled = await run('webhook', 'enable', id)
  t.match(enabled, { code: 0, stdout: 'https://127.0.0.1/x is enabled\n' })
  t.match(enabled.stderr, `sternpost webhook replay --endpoint ${id} --since 30d --status skipped`)
  t.match(await run('webhook', 'replay', '--endpoint', id, '--since', '30d', '--status', 'skipped'), { code: 0 })
  t.match(await run('webhook', 'enable', 'wh_01kapg6t3vq8x2m5r7w9y4c6dm'), { code: 1, stderr: /Not found/ })
})

t.test('what was given up before an endpoint was disabled is told of when it is enabled', async (t) => {
  const { run, api } = await commandServer(t)
  const added = await run('webhook', 'add', 'https://127.0.0.1/x', '--event', 'email.canceled', '--json')
  const { id }: Endpoint = JSON.parse(added.stdout)
  await api.clock.advance(1)
  const now = api.clock.now()
  const { epoch } = await api.store.beginEpoch(now, now)
  t.match(await run('message', 'cancel', await sendOne(api.port)), { code: 0 })
  const posted = await api.store.claimWebhooks(webhookClaim(epoch, now))
  const failed = { at: now, endedAt: now, durationMilliseconds: 1, status: 500, error: null, answer: '' }
  const results = posted.map(({ key, id }) => ({ ...failed, key, id, next: { kind: 'dead-letter' } as const }))
  await api.store.recordWebhookResults({ epoch, results, disableAfter: null })
  const { stderr } = await run('webhook', 'enable', id)
  t.match(
    stderr,
    `1 were given up. To send these now: sternpost webhook replay --endpoint ${id} --since 30d --status failed`,
  )
  t.notMatch((await run('webhook', 'enable', id)).stderr, 'given up', 'the counters began anew')
})

t.test('test tells how the endpoint answered; rotate-secret shows the new secret once', async (t) => {
  const { run } = await commandServer(t)
  // Nobody listens there.
  const { id }: Endpoint = JSON.parse((await run('webhook', 'add', 'https://127.0.0.1:1/hooks', '--json')).stdout)
  t.match(await run('webhook', 'test', id), { code: 1, stdout: /^failed: .+, \d+ ms\n$/ })
  t.match(JSON.parse((await run('webhook', 'test', id, '--event', 'email.bounced', '--json')).stdout), {
    ok: false,
    status: null,
    error: String,
    duration_ms: Number,
  })
  const rotated = await run('webhook', 'rotate-secret', id, '--grace', '2d')
  t.match(rotated, { code: 0, stdout: /^whsec_[\w-]{43}\n$/, stderr: /The old secret signs until \d/ })
  t.match(await run('webhook', 'rotate-secret', id), { code: 1, stderr: /conflict/ })
  const { id: other }: Endpoint = JSON.parse((await run('webhook', 'add', 'https://127.0.0.1/x', '--json')).stdout)
  const words = ['rotate-secret', other, '--grace', '0s', '--secret', 'b'.repeat(20), '--json']
  const document = JSON.parse((await run('webhook', ...words)).stdout)
  t.same(Object.keys(document), ['id', 'switch_at'])
  t.match(await run('webhook', 'rotate-secret', other, '--grace', 'long'), { code: 64, stderr: /--grace/ })
})

t.test('deliveries and replay ask all endpoints, or the one that is named', async (t) => {
  const { run } = await commandServer(t)
  t.match(await run('webhook', 'deliveries'), { code: 0, stdout: '', stderr: 'No such delivery.\n' })
  const { id }: Endpoint = JSON.parse((await run('webhook', 'add', 'https://127.0.0.1/x', '--json')).stdout)
  const none = await run('webhook', 'deliveries', '--status', 'failed', '--endpoint', id, '--json')
  t.match(none, { code: 0, stdout: '[]\n' })
  t.match(await run('webhook', 'deliveries', '--status', 'lost'), { code: 64 })
  const replayed = await run('webhook', 'replay', '--endpoint', id, '--since', '2026-01-01')
  t.match(replayed, { code: 0, stdout: '0 deliveries queued\n' })
  const nothing = 'whd_01kapg6t3vq8x2m5r7w9y4c6dn'
  t.match(await run('webhook', 'replay', nothing), { code: 1, stderr: /no endpoint has the delivery/ })
  t.match(await run('webhook', 'replay', nothing, '--endpoint', id), { code: 1, stderr: /Not found/ })
  for (const words of [[], ['--since', '1h'], ['--endpoint', id], [nothing, '--since', '1h']]) {
    t.match(await run('webhook', 'replay', ...words), { code: 64, stderr: /--endpoint with --since/ })
  }
})
