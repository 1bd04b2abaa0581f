/**
 * Registration rules, the signature's check value, and the retry schedule.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { HOUR, MINUTE } from '../../src/base/clock.ts'
import { ServiceError } from '../../src/base/errors.ts'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { createGuardedRequest } from '../../src/network/guarded-request.ts'
import type { ClaimedWebhookDelivery, WebhookEndpointRecord } from '../../src/store/records/webhook-records.ts'
import { createClaimedAhead } from '../../src/webhooks/claimed-ahead.ts'
import { openSecret } from '../../src/webhooks/endpoint-secret.ts'
import { signatureOf } from '../../src/webhooks/post-event.ts'
import { createWebhookEndpoints, type RegisterEndpointRequest } from '../../src/webhooks/endpoints.ts'
import { nextRetryAt } from '../../src/webhooks/retry-schedule.ts'
import { locationIn, openTestStore } from '../store/sqlite-support.ts'
import { manualClock } from '../support/manual-clock.ts'

t.test('the signature has the check value of the contract', async (t) => {
  const data = '{"message_id":"msg_01kapg6t3vq8x2m5r7w9y4c6de","recipient":"ada@gmail.com"}'
  const body = `{"event":"email.opened","timestamp":1795220000,"data":${data}}`
  t.equal(signatureOf(body, 'topsecret'), '9c0a50b424617178408af9dea2ae38982ab6cbbae42dd78dac85de313d99e929')
  t.not(signatureOf(body, 'whsec_dG9wc2VjcmV0'), signatureOf(body, 'topsecret'), 'a secret is never decoded')
  const inUtf8 = 'b77a16ca22ef85f86cbc2382f259bce4dbe699c42804aef47f24d77e86dd75f2'
  t.equal(signatureOf('ü', 'schlüssel'), inUtf8, 'as openssl gives it for both in UTF-8')
})

t.test('retries come after 1 m, 5 m, 30 m, 2 h and 24 h, never early, at most 2 % late, then no more', async (t) => {
  const delays = [MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 24 * HOUR]
  const endedAt = 1_795_219_200_000
  fc.assert(
    fc.property(fc.string(), (deliveryId) => {
      delays.forEach((delay, index) => {
        const failed = { deliveryId, failedAttempts: index + 1, endedAt }
        const wait = (nextRetryAt(failed) ?? 0) - endedAt
        if (wait < delay || wait > delay * 1.02) throw new Error(`${wait} for ${delay}`)
        if (nextRetryAt(failed) !== nextRetryAt({ ...failed })) throw new Error('not the same twice')
      })
      return nextRetryAt({ deliveryId, failedAttempts: 6, endedAt }) === null
    }),
  )
  const waits = new Set(
    Array.from({ length: 100 }, (_, index) => nextRetryAt({ deliveryId: `whd_${index}`, failedAttempts: 5, endedAt })),
  )
  t.ok(waits.size > 90, 'deliveries that failed together come back apart')
})

interface Registry {
  register(changes: Partial<RegisterEndpointRequest>): ReturnType<ReturnType<typeof createWebhookEndpoints>['register']>
  added: WebhookEndpointRecord[]
  keyRing: ReturnType<typeof createKeyRing>
}

/** The store is real; what is added is noted on the way. */
async function withRegistry(work: (registry: Registry) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-endpoints-'))
  const { store } = await openTestStore(locationIn(folder))
  const keyRing = createKeyRing(Buffer.alloc(32, 3))
  const added: WebhookEndpointRecord[] = []
  const guardedRequest = createGuardedRequest({
    allowPrivateAddresses: false,
    allowHttp: false,
    lookup: async (name) => (name === 'inside.test' ? ['10.0.0.1'] : ['9.9.9.9']),
  })
  const { register } = createWebhookEndpoints({
    store: {
      ...store,
      addWebhookEndpoint: async (endpoint) => {
        await store.addWebhookEndpoint(endpoint)
        added.push(endpoint)
      },
    },
    clock: manualClock(1_795_219_200_000),
    keyRing,
    guardedRequest,
  })
  const url = 'https://app.acme.com/hooks'
  const defaults = { url, events: null, secret: 'a secret of 20 chars', description: null }
  try {
    await work({ register: (changes) => register({ ...defaults, ...changes }), added, keyRing })
  } finally {
    await guardedRequest.close()
    await store.close()
    rmSync(folder, { recursive: true })
  }
}

t.test('a registered endpoint has the documented fields and keeps its secret sealed', async (t) => {
  await withRegistry(async ({ register, added, keyRing }) => {
    const { endpoint, secret, warnings } = await register({ description: 'orders' })
    const { id, ...rest } = endpoint
    t.match(id, /^wh_[0-9a-hjkmnp-tv-z]{26}$/)
    t.strictSame(rest, {
      url: 'https://app.acme.com/hooks',
      events: ['email.delivered', 'email.bounced', 'email.complained', 'email.opened', 'email.clicked'],
      include: [],
      mode: 'live',
      domains: [],
      description: 'orders',
      status: 'enabled',
      disabled_reason: null,
      secret_set: true,
      created_at: 1_795_219_200,
      updated_at: 1_795_219_200,
      last_success_at: null,
      last_failure_at: null,
      consecutive_failures: 0,
      pending: 0,
      dead_letters: 0,
    })
    t.equal(secret, null, 'a given secret is never echoed')
    t.same(warnings, [])
    const [record] = added
    t.notOk(Buffer.from(record?.sealedSecret ?? []).includes('a secret of 20 chars'))
    t.equal(openSecret(keyRing, id, record?.sealedSecret ?? Buffer.alloc(0)), 'a secret of 20 chars')
    t.throws(() => openSecret(keyRing, 'wh_other', record?.sealedSecret ?? Buffer.alloc(0)), 'not for another endpoint')
  })
})

t.test('a secret is generated when none is given, and a short one is warned about', async (t) => {
  await withRegistry(async ({ register, added, keyRing }) => {
    const { endpoint, secret } = await register({ secret: null })
    t.match(secret, /^whsec_[A-Za-z0-9_-]{43}$/)
    t.equal(openSecret(keyRing, endpoint.id, added[0]?.sealedSecret ?? Buffer.alloc(0)), secret)
    t.not((await register({ secret: null })).secret, secret)
    t.match((await register({ secret: 'short' })).warnings, [/^secret: shorter than 16 characters$/])
    t.same((await register({ secret: '🔑'.repeat(256) })).warnings, [], 'characters are code points')
    t.same((await register({ events: ['*'] })).endpoint.events, ['*'])
    const events = ['email.deferred', 'email.opened']
    t.same((await register({ events })).endpoint.events, events)
  })
})

t.test('what is wrong is refused with its field, and nothing is stored', async (t) => {
  const cases: [string, Partial<RegisterEndpointRequest>, RegExp][] = [
    ['plain http', { url: 'http://app.acme.com/' }, /^url: must be an https URL$/],
    ['a user in the URL', { url: 'https://u:p@app.acme.com/' }, /^url: .*user name/],
    ['a fragment', { url: 'https://app.acme.com/#x' }, /^url: .*fragment/],
    ['a long URL', { url: `https://app.acme.com/${'x'.repeat(2_048)}` }, /^url: .*2048 characters/],
    ['a private literal', { url: 'https://127.0.0.1/' }, /^url: /],
    ['a name that leads inside', { url: 'https://inside.test/' }, /^url: /],
    ['no URL', { url: 'hooks' }, /^url: /],
    ['no events', { events: [] }, /^events: must not be empty/],
    [
      'an unknown kind',
      { events: ['email.opened', 'email.sent'] },
      /^events\[1\]: is no event kind; known are email.delivered, .*webhook.test$/,
    ],
    ['a kind of the timeline', { events: ['email.accepted'] }, /^events\[0\]/],
    ['a kind twice', { events: ['email.opened', 'email.opened'] }, /^events\[1\]: email.opened is there twice$/],
    ['a star among kinds', { events: ['email.opened', '*'] }, /^events\[1\]/],
    ['two stars', { events: ['*', '*'] }, /^events\[0\]/],
    [
      'a name of every object',
      { events: ['__proto__'] },
      /^events\[0\]: is no event kind; known are email.delivered, .*webhook.test$/,
    ],
    ['an empty secret', { secret: '' }, /^secret: /],
    ['a long secret', { secret: 'x'.repeat(257) }, /^secret: must have 1 to 256 characters$/],
    ['a long description', { description: 'x'.repeat(201) }, /^description: /],
    ['several at once', { url: 'hooks', events: [], secret: '' }, /^url: .*; events: .*; secret: /],
  ]
  await withRegistry(async ({ register, added }) => {
    for (const [what, changes, details] of cases) {
      const thrown: unknown = await register(changes).then(
        () => undefined,
        (error: unknown) => error,
      )
      t.ok(thrown instanceof ServiceError && thrown.code === 'invalid_request', what)
      t.match(thrown instanceof ServiceError ? thrown.details : '', details, what)
    }
    t.equal(added.length, 0)
  })
})

t.test('an endpoint may have as many deliveries ahead as it answered since it was asked, each once', async (t) => {
  const ahead = createClaimedAhead()
  const delivery = (key: number, endpointId: string): ClaimedWebhookDelivery =>
    ({
      key,
      id: `whd_${key}`,
      endpointId,
      eventId: 'evt_1',
      kind: 'email.delivered',
      body: '{}',
      attempts: 0,
      url: 'https://app.acme.com/',
      sealedSecret: Buffer.alloc(1),
      sealedNextSecret: null,
      nextSecretUntil: null,
    }) as unknown as ClaimedWebhookDelivery
  t.strictSame(ahead.allowances(), {}, 'nobody knows it')
  for (let answered = 0; answered < 3; answered++) ahead.noteAnswered('wh_a')
  for (let answered = 0; answered < 1_000; answered++) ahead.noteAnswered('wh_b')
  t.strictSame(ahead.allowances(), { wh_a: 3, wh_b: 64 }, 'within bounds')
  t.strictSame(ahead.allowances(), {}, 'counted once')
  for (const key of [1, 2]) ahead.add(delivery(key, 'wh_a'))
  ahead.add(delivery(3, 'wh_b'))
  ahead.add(delivery(2, 'wh_a'))
  t.strictSame(ahead.addedTo({ wh_a: 4, wh_c: 1 }), { wh_a: 6, wh_b: 1, wh_c: 1 })
  t.strictSame([ahead.take('wh_a')?.key, ahead.take('wh_a')?.key, ahead.take('wh_a')?.key], [1, 2, undefined])
  t.strictSame(ahead.endpoints(), ['wh_b'])
})
