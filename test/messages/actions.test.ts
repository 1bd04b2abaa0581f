/**
 * What can be done to an accepted message: cancel it, try it again, ask why it is where it is, and see one before it is
 * sent.
 */
import { EVERYTHING } from '../../src/mail/reach.ts'
import type { RetriedMessageJson } from '../../src/api/message.ts'
import t, { type Test } from 'tap'
import { DAY, HOUR, MINUTE, SECOND, toUnixSeconds } from '../../src/base/clock.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import { createClassifier } from '../../src/mail/reply/classify-reply.ts'
import type { DeliveryOutcome } from '../../src/mail/reply/delivery-outcome.ts'
import { createAcceptBatch } from '../../src/messages/accept/accept-message.ts'
import { createMessageActions, type MessageActions } from '../../src/messages/lookup/act-on-message.ts'
import { createMessageLookup, type MessageLookup } from '../../src/messages/lookup/lookup-message.ts'
import type { WaitReason } from '../../src/mail/waiting-mail.ts'
import { createPreviewMessage } from '../../src/messages/accept/preview-message.ts'
import type { Idempotent, SendRequest } from '../../src/messages/accept/send-request.ts'
import { senderParts } from '../senders/sender-parts.ts'
import { attempt, bounced, delivered, outcomeRecord, sampleBounce } from '../store/store-samples.ts'
import { claimMessages } from '../support/claim-messages.ts'
import {
  accepted,
  acceptanceParts,
  acceptedId,
  batchRequest,
  callerWith,
  LIFETIME,
  sendRequest,
  verdict,
  type AcceptanceParts,
} from './acceptance-parts.ts'
import { RENDERING } from './rendered-headers.ts'

const ALL = callerWith()
const seeing = (caller: ReturnType<typeof callerWith>) => ({
  caller,
  reach: { isTest: caller.mode === 'test', domains: caller.domains },
})

interface ActionParts extends AcceptanceParts {
  actions: MessageActions
  lookup: MessageLookup
  /** What delivery says of every message. */
  waits: { reason: WaitReason | undefined; problem?: string }
  send(changes?: Partial<SendRequest>): Promise<string>
  /** Claims the message and records what became of it. */
  settle(id: string, outcome: DeliveryOutcome, reply?: string): Promise<void>
}

async function actionParts(t: Test): Promise<ActionParts> {
  const parts = await acceptanceParts(t)
  const { store, clock, domains } = parts
  const { epoch } = await store.beginEpoch(clock.now(), clock.now())
  const waits: ActionParts['waits'] = { reason: undefined }
  const rule = {
    id: 'google-unusual-rate',
    provider: 'gmail',
    stage: [],
    class: null,
    match: 'unusual rate',
    category: 'rate',
    weak: false,
  }
  const lookup = createMessageLookup({
    store,
    clock,
    domains,
    classify: createClassifier([rule]),
    whyWaiting: () => waits.reason,
    deliverProblem: () => waits.problem ?? null,
    whereIs: async () => undefined,
    longestStageMilliseconds: 10 * MINUTE,
  })
  return {
    ...parts,
    lookup,
    waits,
    actions: createMessageActions(parts.options),
    send: (changes = {}) => acceptedId(parts.accept(sendRequest(changes), ALL, null)),
    async settle(id, outcome, reply = '250 2.0.0 OK') {
      const now = clock.now()
      const pools = [...parts.egress.poolNames(), '(capture)']
      const claimed = await claimMessages(store, { now, epoch, leaseUntil: now + MINUTE, pools, limit: 100 })
      const message = claimed.find((each) => each.id === id)
      if (message === undefined) throw new Error(`${id} was not claimed`)
      const others = claimed.filter((each) => each !== message).map(({ key, claim }) => ({ key, claim, nextAt: now }))
      await store.unclaim({ epoch, rows: others })
      const record = outcomeRecord(message, outcome)
      // The DNS named no host that a path leads to.
      const ip = outcome.kind === 'path-failed' ? null : '127.0.0.11'
      await store.recordOutcomes({
        epoch,
        now,
        outcomes: [{ ...record, attempt: attempt({ at: now, result: outcome.kind, reply, stage: 'rcpt', ip }) }],
      })
    },
  }
}

const stateOf = async ({ lookup }: ActionParts, id: string): Promise<string> =>
  (await lookup.message(id, EVERYTHING)).state

t.test('cancel: what waits is canceled for good, once', async (t) => {
  const parts = await actionParts(t)
  const { actions, send, settle, clock, told } = parts
  const scheduled = await send({ sendAt: toUnixSeconds(clock.now()) + 60 })
  const deferred = await send()
  await settle(deferred, { kind: 'deferred', retryAt: clock.now() + HOUR }, '450 later')
  for (const id of [await send(), scheduled, deferred]) {
    t.same(await actions.cancel(id, EVERYTHING), { message_id: id, state: 'canceled' })
    t.same(await actions.cancel(id, EVERYTHING), { message_id: id, state: 'canceled' }, 'unchanged')
    t.equal(await stateOf(parts, id), 'canceled')
  }
  t.ok(told.events >= 3)
  const events = await parts.lookup.events(scheduled, EVERYTHING)
  t.equal(events.filter(({ event }) => event === 'email.canceled').length, 1)
})

t.test('cancel: what cannot be canceled is a conflict in plain words', async (t) => {
  const { actions, send, settle, store, clock } = await actionParts(t)
  const done = await send()
  await settle(done, delivered)
  await t.rejects(actions.cancel(done, EVERYTHING), {
    code: 'conflict',
    details: `message ${done} is delivered: the recipient's server has taken it, so it cannot be canceled`,
  })
  const bad = await send()
  await settle(bad, bounced, '550 5.1.1 no such user')
  await t.rejects(actions.cancel(bad, EVERYTHING), { code: 'conflict', details: /is bounced: it was refused for good/ })
  const suppressed = await send({ to: 'suppressed@simulator.sternpost.test' })
  await t.rejects(actions.cancel(suppressed, EVERYTHING), {
    code: 'conflict',
    details: /is suppressed: its address is on the suppression list/,
  })
  const sending = await send()
  const { epoch } = await store.beginEpoch(clock.now(), clock.now())
  await claimMessages(store, {
    now: clock.now(),
    epoch,
    leaseUntil: clock.now() + MINUTE,
    pools: ['default'],
    limit: 10,
  })
  await t.rejects(actions.cancel(sending, EVERYTHING), {
    code: 'conflict',
    details: /is sending: its SMTP transaction is under way/,
  })
  const unknown = newIdentifier('msg', clock.now())
  await t.rejects(actions.cancel(unknown, EVERYTHING), { code: 'not_found', details: `message ${unknown}` })
  await t.rejects(actions.cancel('x', EVERYTHING), { code: 'not_found' })
  await t.rejects(actions.cancel(done, { isTest: null, domains: ['other.com'] }), { code: 'not_found' })
})

t.test('cancel: what may have arrived is not called canceled, also behind a kill', async (t) => {
  const parts = await actionParts(t)
  const { actions, options, settle, store, clock } = parts
  const recipients = ['a', 'b', 'c'].map((name) => ({ to: `${name}@example.net` }))
  const { batchId, results } = await accepted(createAcceptBatch(options)(batchRequest({ recipients }), ALL, null))
  const [lost = '', killed = '', plain = ''] = results.map((result) => ('messageId' in result ? result.messageId : ''))
  await settle(lost, { kind: 'ambiguous', retryAt: clock.now() + HOUR })
  const { epoch } = await store.beginEpoch(clock.now(), clock.now())
  const terms = { now: clock.now(), epoch, leaseUntil: clock.now() + MINUTE, pools: ['default'], limit: 10 }
  const claimed = await claimMessages(store, terms)
  const dotted = claimed.filter(({ id }) => id === killed)
  t.same(await store.markDotSent(epoch, dotted), { stale: [] })
  await store.beginEpoch(clock.now(), clock.now())
  for (const id of [lost, killed]) {
    const details = `message ${id} may have arrived: a connection was lost after its end was sent, or a backup was restored, so it cannot be canceled`
    await t.rejects(actions.cancel(id, EVERYTHING), { code: 'conflict', details })
  }
  t.same(await actions.cancelBatch(batchId, EVERYTHING), { batch_id: batchId, canceled: 1, not_canceled: 2 })
  t.match(await parts.lookup.batch(batchId, EVERYTHING), { states: { canceled: 1, queued: 1, deferred: 1 } })
  t.equal(await stateOf(parts, plain), 'canceled')
})

t.test('cancel: a batch is canceled as far as it waits', async (t) => {
  const parts = await actionParts(t)
  const { actions, options, settle, clock } = parts
  const recipients = ['a', 'b', 'c'].map((name) => ({ to: `${name}@example.net` }))
  const { batchId, results } = await accepted(createAcceptBatch(options)(batchRequest({ recipients }), ALL, null))
  const [first] = results
  if (first === undefined || !('messageId' in first)) throw new Error('nothing was accepted')
  await settle(first.messageId, delivered)
  t.same(await actions.cancelBatch(batchId, EVERYTHING), { batch_id: batchId, canceled: 2, not_canceled: 1 })
  await actions.cancelBatch(batchId, EVERYTHING)
  t.match(await parts.lookup.batch(batchId, EVERYTHING), { states: { canceled: 2, delivered: 1 } })
  await t.rejects(actions.cancelBatch(newIdentifier('bat', clock.now()), EVERYTHING), { code: 'not_found' })
  await t.rejects(actions.cancelBatch(batchId, { isTest: null, domains: ['other.com'] }), { code: 'not_found' })
})

const keeping = (key: string): Idempotent<RetriedMessageJson> => ({
  entry: { apiKeyId: null, key, fingerprint: Buffer.alloc(32, 1) },
  answer: (message) => ({ status: 200, body: JSON.stringify(message) }),
})

t.test('retry: a deferred message is due now', async (t) => {
  const parts = await actionParts(t)
  const { actions, send, settle, store, clock, told } = parts
  const id = await send()
  await settle(id, { kind: 'deferred', retryAt: clock.now() + HOUR }, '450 later')
  const before = told.queued
  t.same(await accepted(actions.retry(id, seeing(ALL), keeping('a'))), {
    message_id: id,
    retry_of: null,
    state: 'deferred',
  })
  t.equal(told.queued, before + 1)
  t.equal((await parts.lookup.message(id, EVERYTHING)).next_attempt_at, toUnixSeconds(clock.now()))
  t.match(await store.findIdempotent(keeping('a').entry, clock.now()), { kind: 'replayed' }, 'its answer is kept')
})

t.test('retry: a bounced message is sent again as a new one', async (t) => {
  const parts = await actionParts(t)
  const { actions, send, settle, stored, clock } = parts
  const id = await send({
    subject: 'Hi {{name}}',
    variables: { name: 'Ada' },
    tags: { a: 'b' },
    ipPool: 'spare',
    expiresIn: 600,
    attachments: [{ name: 'a.txt', content: 'YQ==', contentType: undefined, contentId: undefined }],
    track: { opens: false, clicks: true },
    headers: { 'X-A': 'b' },
    stream: 'bulk',
  })
  await settle(id, bounced, '550 5.7.1 no')
  await clock.advance(HOUR)
  const again = await accepted(actions.retry(id, seeing(ALL), keeping('b')))
  t.match(again, { message_id: /^msg_/, retry_of: id, state: 'queued' })
  t.not(again.message_id, id)
  const [first, second] = stored
  t.same(second?.content, first?.content)
  t.match(second, { retryOf: id, pool: 'spare', stream: 'bulk', sendAt: null, batch: null, isTest: false })
  t.match(second?.messages, [{ to: first?.messages[0]?.to, expiresAt: clock.now() + 600 * SECOND }])
  t.match(await parts.lookup.message(again.message_id, EVERYTHING), {
    retry_of: id,
    state: 'queued',
    subject: 'Hi Ada',
  })
  t.match(await actions.retry(id, seeing(ALL), keeping('b')), {
    kind: 'replayed',
    answer: { body: JSON.stringify(again) },
  })
  t.equal(await stateOf(parts, id), 'bounced', 'the old one stays as it is')
})

t.test('retry: an expired message too', async (t) => {
  const { actions, send, store, clock } = await actionParts(t)
  const id = await send()
  await clock.advance(LIFETIME + SECOND)
  await store.expireDue(clock.now(), 10)
  t.match(await accepted(actions.retry(id, seeing(ALL), null)), { retry_of: id, state: 'queued' })
})

t.test('retry: every reason against it is told', async (t) => {
  const parts = await actionParts(t)
  const { actions, send, settle, store, clock, domains } = parts
  const retry = (id: string, caller = ALL): Promise<string> => verdict(actions.retry(id, seeing(caller), null))
  const waiting = await send()
  t.equal(
    await retry(waiting),
    `conflict: message ${waiting} is queued: it waits to be sent; ` +
      'only a deferred, bounced or expired message can be tried again',
  )
  await settle(waiting, delivered)
  t.match(await retry(waiting), /^conflict: message msg_\w+ is delivered: the recipient's server has taken it; only/)
  const canceled = await send()
  await actions.cancel(canceled, EVERYTHING)
  t.match(await retry(canceled), /^conflict: .* is canceled: it was withdrawn/)
  t.match(await retry(newIdentifier('msg', clock.now())), /^not_found: /)

  const bad = await send({ unsubscribe: { list: 'news', url: undefined } })
  await settle(bad, bounced, '550 5.1.1 no')
  t.match(await retry(bad, callerWith({ domains: ['other.com'] })), /^not_found: /)
  t.match(await retry(bad, callerWith({ mode: 'test' })), /^not_found: /)
  const suppress = (scope: string, isTest: boolean): Promise<unknown> =>
    store.addSuppression({
      id: newIdentifier('sup', clock.now()),
      email: 'ada@example.net',
      reason: 'unsubscribe',
      scope,
      domain: null,
      owners: [],
      isTest,
      messageId: null,
      createdAt: clock.now(),
    })
  await suppress('other', false)
  await suppress('all', true)
  t.equal(await retry(bad), 'accepted', 'another list, and the list of test keys, do not matter')
  await suppress('news', false)
  t.equal(await retry(bad), 'conflict: ada@example.net is on the suppression list for the list news (unsubscribe)')
  await suppress('all', false)
  t.equal(await retry(bad), 'conflict: ada@example.net is on the suppression list (unsubscribe)')
  await store.removeSuppressions({ email: 'ada@example.net', scope: null, isTest: false, domains: [] })
  await domains.remove('acme.com', { purge: false })
  t.match(await retry(bad), /^domain_not_verified: acme\.com/)
})

t.test('retry: mail of a test key stays on the host, whoever asks', async (t) => {
  const { actions, accept, settle, stored } = await actionParts(t)
  const id = await acceptedId(accept(sendRequest(), callerWith({ mode: 'test' }), null))
  await settle(id, bounced, '550 5.1.1 no')
  await t.rejects(actions.retry(id, seeing(ALL), null), { code: 'not_found' }, 'a live key does not see it')
  await actions.retry(id, { caller: ALL, reach: EVERYTHING }, null)
  t.match(stored[1], { isTest: true, messages: [{ isCaptured: true }] })
})

t.test('retry: content that is gone is a conflict', async (t) => {
  const { options, send, settle } = await actionParts(t)
  const id = await send()
  await settle(id, bounced, '550 5.1.1 no')
  const store = { ...options.store, requestToRepeat: async () => null }
  await t.rejects(createMessageActions({ ...options, store }).retry(id, seeing(ALL), null), {
    code: 'conflict',
    details: `message ${id}: its content is no longer stored, so it cannot be sent again`,
  })
})

t.test('explain: what happened, what it waits for, what to do', async (t) => {
  const parts = await actionParts(t)
  const { lookup, send, settle, clock, waits } = parts
  const id = await send()
  const explain = () => lookup.explain(id, EVERYTHING)
  t.match(await explain(), {
    message_id: id,
    state: 'queued',
    waiting_for: null,
    reply: null,
    category: null,
    rule: null,
    similar: null,
    summary: 'It is in the queue and leaves as soon as a connection is free.',
    advice: ['Nothing to do.'],
  })
  waits.reason = {
    waitingFor: 'connections',
    untilMilliseconds: null,
    text: 'Every connection to example.net is busy.',
  }
  t.match(await explain(), { waiting_for: 'connections', summary: 'Every connection to example.net is busy.' })
  waits.reason = { waitingFor: 'ip_paused', untilMilliseconds: null, text: '192.0.2.1 is cold.' }
  t.match(await explain(), { summary: '192.0.2.1 is cold.', advice: [/enable an IP of its pool; sternpost ip list/] })
  waits.problem = 'the disk is full'
  t.match(await explain(), { summary: 'It waits: no delivery begins, for the disk is full.', advice: [/doctor disk/] })
  delete waits.problem
  waits.reason = undefined
  const reply = '421-4.7.28 Gmail has detected an unusual rate of mail'
  await settle(id, { kind: 'deferred', retryAt: clock.now() + 15 * MINUTE }, reply)
  await clock.advance(MINUTE)
  t.match(await explain(), {
    state: 'deferred',
    summary: 'gmail asks to slow down (60 seconds ago). The next attempt is in 14 minutes.',
    waiting_for: 'retry_delay',
    reply,
    category: 'rate',
    rule: 'google-unusual-rate',
    next_attempt_at: toUnixSeconds(clock.now()) + 14 * 60,
    similar: { isp: 'gmail', last_hour: { attempts: 1, deferred: 1 } },
    advice: ['Nothing to do.'],
  })
  const { similar } = await lookup.explain(id, { isTest: false, domains: ['acme.com'] })
  t.equal(similar, null, 'it counts the mail of other domains too')
  waits.reason = {
    waitingFor: 'suspension',
    untilMilliseconds: clock.now() + HOUR,
    text: 'Sending to gmail pauses for 60 minutes.',
  }
  t.match(await explain(), {
    waiting_for: 'suspension',
    summary: 'gmail asks to slow down (60 seconds ago). Sending to gmail pauses for 60 minutes.',
  })
  t.match((await explain()).checks, [
    { check: 'dkim', status: 'pass', seen: /^ps/ },
    { check: 'spf', status: 'pass', seen: 'pass for 127.0.0.11' },
    { check: 'dmarc', status: 'pass', seen: /^v=DMARC1/ },
  ])
})

t.test('explain: the end of a message', async (t) => {
  const parts = await actionParts(t)
  const { lookup, send, settle, store, clock } = parts
  const explain = (id: string) => lookup.explain(id, EVERYTHING)
  const done = await send()
  await settle(done, delivered)
  t.match(await explain(done), {
    summary: 'gmail took it at the first attempt.',
    waiting_for: null,
    category: null,
    reply: '250 2.0.0 OK',
  })
  const bad = await send()
  await settle(bad, bounced, '550 5.1.1 no such user')
  t.match(await explain(bad), {
    summary: 'gmail says that there is no such address; it is not tried again.',
    category: 'invalid_recipient',
    reply: '550 5.1.1 no such user',
    advice: ['Remove the address from your lists.'],
    waiting_for: null,
  })
  const blocked = await send()
  const bounce = { ...sampleBounce, category: 'auth_failed', type: 'block' } as const
  await settle(blocked, { kind: 'bounced', bounce }, '550 5.7.26 unauthenticated')
  t.match(await explain(blocked), { category: 'auth_failed', advice: [/records of the sending domain/] })
  const late = await send({ sendAt: toUnixSeconds(clock.now() + 3 * DAY) })
  t.match(await explain(late), { waiting_for: 'send_at', summary: 'It is sent in 3 days.' })
  const gone = await send()
  await parts.actions.cancel(gone, EVERYTHING)
  t.match(await explain(gone), { summary: 'It was canceled before it was sent.', waiting_for: null })
  const suppressed = await send({ to: 'suppressed@simulator.sternpost.test' })
  t.match(await explain(suppressed), { summary: 'It was not sent: the address is on the suppression list.' })
  const expired = await send()
  await settle(expired, { kind: 'path-failed', retryAt: clock.now() + MINUTE }, 'no answer from the DNS')
  t.match(await explain(expired), { state: 'deferred', advice: [/look at the DNS servers of this machine: sternpost/] })
  await clock.advance(LIFETIME + SECOND)
  // The clock has jumped, and nothing may expire by it yet.
  t.match(await explain(expired), {
    state: 'deferred',
    summary: /^Its lifetime is over: it is not tried any more/,
    waiting_for: null,
    next_attempt_at: null,
    advice: [/sternpost doctor clock/],
  })
  await store.expireDue(clock.now(), 10)
  t.match(await explain(expired), {
    state: 'expired',
    category: 'expired',
    reply: 'no answer from the DNS',
    summary:
      'Its lifetime ended before gmail took it. ' + 'The last attempt, 3 days ago, ended with: no answer from the DNS.',
  })
  await t.rejects(explain('x'), { code: 'not_found' })
})

t.test('explain: checks that did not pass', async (t) => {
  const parts = await actionParts(t)
  const { zone, domains, clock, lookup, send } = parts
  const { records = [] } = (await domains.find('acme.com')) ?? {}
  const nameOf = (purpose: string): string => records.find((record) => record.purpose === purpose)?.name ?? ''
  zone.set(nameOf('dmarc'), {})
  zone.set(nameOf('dkim'), { TXT: ['v=DKIM1; p='] })
  await clock.advance(MINUTE)
  await domains.verify('acme.com')
  const { checks } = await lookup.explain(await send(), EVERYTHING)
  t.match(checks, [
    { check: 'dkim', status: 'fail', seen: /\w/ },
    { check: 'spf', status: 'pass' },
    { check: 'dmarc', status: 'warn', seen: /\w/ },
  ])
})

t.test('explain: a domain whose key does not open with this master key signs nothing', async (t) => {
  const { store, clock, send } = await actionParts(t)
  const id = await send()
  const { domains } = await senderParts(t, { store, masterKey: Buffer.alloc(32, 8) })
  const lookup = createMessageLookup({
    store,
    clock,
    domains,
    classify: createClassifier([]),
    whyWaiting: () => undefined,
    whereIs: async () => undefined,
    longestStageMilliseconds: MINUTE,
  })
  t.match(await lookup.explain(id, EVERYTHING), {
    summary: /^It waits: the private key does not open/,
    checks: [
      { check: 'dkim', status: 'fail', seen: /does not open/ },
      { check: 'spf', status: 'pass' },
    ],
    advice: [/^sternpost domain dkim rotate acme\.com/],
  })
})

t.test('preview: the mail as it would be sent, and nothing stored', async (t) => {
  const parts = await actionParts(t)
  const { options, stored, egress } = parts
  const preview = createPreviewMessage({
    ...options,
    egress,
    renderingOf: async (domain) => ({ ...RENDERING, returnPath: `bounces.${domain}` }),
  })
  const data = await preview(
    sendRequest({
      subject: 'Order {{no}}',
      html: '<a href="https://acme.com/{{no}}">{{no}}</a>',
      variables: { no: '<7>' },
      headers: { 'X-A': 'ü' },
      cc: ['bob@example.org'],
      track: { opens: false, clicks: true },
    }),
    ALL,
  )
  t.match(data, { subject: 'Order <7>', text: /<7>/, html: /&lt;7&gt;/, warnings: [] })
  t.ok(data.mime_bytes > 500)
  t.match(
    data.headers.filter(({ name }) => ['To', 'Cc', 'Subject'].includes(name)),
    [
      { name: 'To', value: 'Ada <ada@example.net>' },
      { name: 'Cc', value: 'bob@example.org' },
      { name: 'Subject', value: 'Order <7>' },
    ],
  )
  t.same(data.links.length, 1)
  t.match((await preview(sendRequest({ subject: '', text: '', html: 'x'.repeat(110_000) }), ALL)).warnings, [
    'the subject is empty',
    'there is no text part for readers without html',
    /the html is over 104448 bytes/,
  ])
  const short = sendRequest({ text: undefined, html: `<p>${'x'.repeat(900)}`, track: { opens: true, clicks: false } })
  t.match((await preview(short, ALL)).warnings, [
    /only image beside 9\d\d characters of text: SpamAssassin adds up to 2.1 points/,
  ])
  t.match(await verdict(preview(sendRequest({ to: 'x', from: 'y' }), ALL)), /^invalid_recipient: to: .*; from: /)
  t.match(await verdict(preview(sendRequest({ from: 'a@unknown.org' }), ALL)), /^domain_not_verified/)
  t.match(await verdict(preview(sendRequest(), callerWith({ domains: ['other.com'] }))), /^forbidden/)
  t.equal((await preview(sendRequest({ ipPool: 'cold' }), ALL)).subject, 'Order', 'no IP is needed')
  t.equal(stored.length, 0)
})
