import { createSecretKey } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import { DAY } from '../../src/base/clock.ts'
import { ServiceError } from '../../src/base/errors.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import { unsubscribeToken } from '../../src/mail/message-token.ts'
import { createAcceptSubmission } from '../../src/messages/accept/accept-submission.ts'
import { verified } from '../messages/acceptance-parts.ts'
import { HOSTNAME } from '../senders/sender-parts.ts'
import { acceptOne, LIVE_SUPPRESSIONS, anything } from '../store/store-samples.ts'
import { until } from '../support/until.ts'
import { inboundParts, RETURN_PATH, tokensOf, type InboundParts } from './inbound-parts.ts'
import { bounceReport, feedbackReport, VACATION } from './report-samples.ts'
import { smtpClient } from './smtp-client.ts'

const parts: InboundParts = await inboundParts(t)
let reportsAsked = 0
const { port } = await parts.reports({
  store: {
    ...parts.store,
    recordReport(report) {
      reportsAsked += 1
      return parts.store.recordReport(report)
    },
  },
})

/** One mail with the null sender; resolves with the last reply. */
async function bring(recipients: string | string[], message: string, at = port): Promise<string> {
  const client = await smtpClient({ port: at })
  await client.greet()
  const reply = await client.mail([recipients].flat(), message, '')
  client.destroy()
  return reply
}

const everything = () => ({ ...anything, now: parts.clock.now() })
const taken = /^250 2\.0\.0 taken$/
const suppressed = async (email: string): Promise<string[]> => {
  const { suppressions } = await parts.store.listSuppressions({ ...LIVE_SUPPRESSIONS, email })
  return suppressions.map(({ reason, scope }) => `${reason} ${scope}`)
}

t.test('nobody is a recipient but our tokens and the addresses of the configuration', async (t) => {
  const { bounceToken, complaintToken, messageId } = await parts.deliveredMessage()
  const unsubscribe = unsubscribeToken(messageId, 0, parts.keyRing.key('unsubscribe'))
  const good = [
    `b-${bounceToken}@${RETURN_PATH}`,
    `B-${bounceToken.toUpperCase()}@BOUNCES.acme.com`,
    `f-${complaintToken}@${RETURN_PATH}`,
    `u-${unsubscribe}@${RETURN_PATH}`,
    `b-${bounceToken}@rp.${HOSTNAME}`,
    `fbl@${HOSTNAME}`,
    `dmarc@${HOSTNAME}`,
    `postmaster@${HOSTNAME}`,
    `Abuse@${HOSTNAME}`,
    `postmaster@${RETURN_PATH}`,
    'Postmaster',
  ]
  const flipped = `${bounceToken.slice(0, -1)}${bounceToken.endsWith('a') ? 'b' : 'a'}`
  const bad = [
    `b-${flipped}@${RETURN_PATH}`,
    `b-${complaintToken}@${RETURN_PATH}`,
    `f-${bounceToken}@${RETURN_PATH}`,
    `u-${bounceToken}@${RETURN_PATH}`,
    `b-${bounceToken}@example.org`,
    `b-${bounceToken}@acme.com`,
    `b-${bounceToken}`,
    `${bounceToken}@${RETURN_PATH}`,
    `b-${bounceToken}+x@${RETURN_PATH}`,
    `b-@${RETURN_PATH}`,
    `info@${HOSTNAME}`,
    `fbl@${RETURN_PATH}`,
    'victim@example.org',
    'postmaster@example.org',
    `"b-${bounceToken}"@${RETURN_PATH}`,
    `victim%example.org@${RETURN_PATH}`,
    `victim%example.org@${HOSTNAME}`,
    `"victim@example.org"@${HOSTNAME}`,
    `victim@example.org@${HOSTNAME}`,
    `@${HOSTNAME}:victim@example.org`,
    `@${HOSTNAME}:b-${bounceToken}@${RETURN_PATH}`,
    `example.org!victim@${HOSTNAME}`,
    `example.org!victim`,
    `b-${bounceToken}@[127.0.0.1]`,
    `postmaster@[127.0.0.1]`,
    `b-${bounceToken}@${RETURN_PATH}\u00ad`,
    'victim',
    `root@${HOSTNAME}`,
    ` fbl@${HOSTNAME}`,
  ]
  const before = parts.stored.length
  const client = await smtpClient({ port })
  t.notMatch(await client.greet(), /AUTH/)
  t.match(await client.say('AUTH PLAIN AGEAYg=='), /^500 /)
  await client.say('MAIL FROM:<spammer@example.org>')
  for (const address of good) t.equal(await client.say(`RCPT TO:<${address}>`), '250 2.1.5 Accepted', address)
  for (const address of bad) t.match(await client.say(`RCPT TO:<${address}>`), /^550 5\.1\.1 /, address)
  t.match(await client.say('VRFY postmaster'), /^252 /)
  client.destroy()
  t.match(await bring(['victim@example.org'], 'Subject: relay\r\n\r\nme'), /^503 /, 'and no mail without one')
  t.equal(parts.stored.length, before)
})

t.test('a bounce of a delivered message ends it, late, once, and the address is suppressed', async (t) => {
  const { messageId, bounceAddress } = await parts.deliveredMessage('late@example.com')
  await parts.clock.advance(DAY)
  const report = bounceReport({ finalRecipient: 'somebody-else@example.org' })
  const events = parts.told.events
  t.match(await bring(bounceAddress, report), taken)
  t.match(await parts.look(messageId), {
    state: 'bounced',
    bouncedAt: parts.clock.now(),
    deliveredAt: parts.clock.now() - DAY,
    bounce: { type: 'hard', code: '5.1.1', isLate: true, description: '550 5.1.1 <ada@example.com>: no such user' },
  })
  t.same(await suppressed('late@example.com'), ['hard_bounce all'])
  t.same(await suppressed('somebody-else@example.org'), [], 'the recipient is ours, never the one in the report')
  t.equal(parts.told.events, events + 1)
  t.match(await bring(bounceAddress, report), taken)
  const kinds = await parts.eventKinds(messageId)
  t.equal(kinds.filter((kind) => kind === 'email.bounced').length, 1, 'the same report again changes nothing')
  t.match(parts.log.join('\n'), new RegExp(`"kind":"bounce","result":"repeated","message_id":"${messageId}"`))
})

t.test('a bounce that names nobody is about our recipient; of others the mildest answer counts', async (t) => {
  const gone = await parts.deliveredMessage('gone@example.com')
  const nobody = bounceReport({ finalRecipient: 'x400; /S=gone/O=x/' })
  t.match(await bring(gone.bounceAddress, nobody), taken)
  t.match((await parts.look(gone.messageId)).bounce, { type: 'hard' })
  t.same(await suppressed('gone@example.com'), ['hard_bounce all'])
  const list = await parts.deliveredMessage('list@example.com')
  const group = '\r\n\r\nFinal-Recipient: rfc822; full@example.net\r\nAction: failed\r\nStatus: 5.2.2'
  const several = bounceReport().replace('no such user', `no such user${group}`)
  t.match(await bring(list.bounceAddress, several), taken)
  t.match((await parts.look(list.messageId)).bounce, { type: 'soft', category: 'mailbox_full' })
  t.same(await suppressed('list@example.com'), [])
})

t.test('what failed for another recipient of the report is not told of ours', async (t) => {
  const group = (address: string, action: string, status: string): string =>
    `Final-Recipient: rfc822; ${address}\r\nAction: ${action}\r\nStatus: ${status}\r\n\r\n`
  const report = (...groups: string[]): string =>
    bounceReport().replace(/Final-Recipient[^]*?\r\n\r\n/, () => groups.join(''))
  const dead = group('gone@example.com', 'failed', '5.1.1')
  // As Postfix tells what became of an alias for several.
  const member = (address: string, list: string, status: string): string =>
    group(`${address}\r\nOriginal-Recipient: rfc822; ${list}@example.com`, 'failed', status)
  const cases: [name: string, others: string[], state: string, isSuppressed: boolean][] = [
    ['beside', [group('beside@example.com', 'relayed', '2.1.5'), dead], 'delivered', false],
    ['slow', [group('slow@example.com', 'delayed', '4.4.1'), dead], 'delivered', false],
    ['alias', [group('one@example.com', 'relayed', '2.1.5'), dead], 'bounced', false],
    ['list', [dead, group('old@example.com', 'failed', '5.1.1')], 'bounced', true],
    ['full', [dead, group('full@example.com', 'failed', '5.2.2')], 'bounced', false],
    ['team', [member('gone@x.test', 'team', '5.1.1'), member('full@x.test', 'team', '5.2.2')], 'bounced', false],
    ['crew', [member('gone@x.test', 'crew', '5.1.1'), member('lost@x.test', 'crew', '5.1.1')], 'bounced', true],
  ]
  for (const [name, groups, state, isSuppressed] of cases) {
    const { messageId, bounceAddress } = await parts.deliveredMessage(`${name}@example.com`)
    t.match(await bring(bounceAddress, report(...groups)), taken)
    t.match(await parts.look(messageId), { state }, name)
    t.same(await suppressed(`${name}@example.com`), isSuppressed ? ['hard_bounce all'] : [], name)
  }
  const { messageId, bounceAddress } = await parts.deliveredMessage('leser@xn--bcher-kva.example')
  t.match(await bring(bounceAddress, report(group('leser@bücher.example', 'relayed', '2.1.5'), dead)), taken)
  t.match(await parts.look(messageId), { state: 'delivered' }, 'its domain in Unicode')
})

t.test('a soft or a blocking bounce suppresses nobody', async (t) => {
  const full = await parts.deliveredMessage('full@example.com')
  await bring(full.bounceAddress, bounceReport({ status: '5.2.2', diagnostic: 'smtp; 552 5.2.2 mailbox full' }))
  t.match((await parts.look(full.messageId)).bounce, { type: 'soft', code: '5.2.2', category: 'mailbox_full' })
  t.same(await suppressed('full@example.com'), [])
  const blocked = await parts.deliveredMessage('blocked@example.com')
  const refusal = { status: '5.7.1', diagnostic: 'smtp; 550 5.7.1 rejected by policy' }
  await bring(blocked.bounceAddress, bounceReport(refusal))
  t.not((await parts.look(blocked.messageId)).bounce?.type, 'hard')
  t.same(await suppressed('blocked@example.com'), [])
})

t.test('a refusal for the time being is soft, and the null sender of the envelope tells a bounce', async (t) => {
  const later = await parts.deliveredMessage('later@example.com')
  await bring(later.bounceAddress, bounceReport({ status: '4.1.1', diagnostic: 'smtp; 450 4.1.1 user unknown' }))
  t.match((await parts.look(later.messageId)).bounce, { type: 'soft', code: '4.1.1' })
  t.same(await suppressed('later@example.com'), [])
  const { messageId, bounceAddress } = await parts.deliveredMessage('prose@example.com')
  const header = ['From: helpdesk@example.com', 'Subject: failure notice', '']
  await bring(bounceAddress, [...header, '<prose@example.com>:', 'no mailbox (#5.1.1)'].join('\r\n'))
  t.match((await parts.look(messageId)).bounce, { type: 'hard', code: '5.1.1' })
})

t.test('where a rule says so, only the second answer within 30 days calls an address dead', async (t) => {
  const bounce = { type: 'hard' as const, category: 'inactive', code: '5.2.1', description: 'mailbox unavailable' }
  const reportOne = async (): Promise<string[]> => {
    const { messageId } = await parts.deliveredMessage('twice@example.com')
    const now = parts.clock.now()
    const fact = { kind: 'bounce' as const, bounce, suppress: 'second' as const }
    t.match(await parts.store.recordReport({ messageId, now, sentSince: 0, fact }), { kind: 'recorded' })
    return suppressed('twice@example.com')
  }
  t.same(await reportOne(), [])
  await parts.clock.advance(DAY / 2)
  t.same(await reportOne(), [], 'within a day it is the same trouble')
  await parts.clock.advance(40 * DAY)
  t.same(await reportOne(), [], 'after a month it is another')
  await parts.clock.advance(2 * DAY)
  t.same(await reportOne(), ['hard_bounce all'])
})

t.test('a message is found by what the report repeats of it', async (t) => {
  const report = `fbl@${HOSTNAME}`
  const cases = [
    ({ bounceToken }: ReturnType<typeof tokensOf>) => ({ originalEnvelopeId: `b-${bounceToken}` }),
    ({ complaintToken }: ReturnType<typeof tokensOf>) => ({ returned: [`X-Sternpost-Ref: ${complaintToken}`] }),
    ({ complaintToken }: ReturnType<typeof tokensOf>) => ({ returned: [`Message-ID: <${complaintToken}@acme.com>`] }),
    ({ bounceAddress }: ReturnType<typeof tokensOf>) => ({ returned: [`Return-Path: <${bounceAddress}>`] }),
  ]
  for (const fields of cases) {
    const tokens = await parts.deliveredMessage(`found${cases.indexOf(fields)}@example.com`)
    t.match(await bring(report, bounceReport(fields(tokens))), taken)
    t.equal((await parts.look(tokens.messageId)).state, 'bounced', JSON.stringify(fields(tokens)))
  }
})

t.test('delays are noted, vacation notes are not', async (t) => {
  const { messageId, bounceAddress } = await parts.deliveredMessage()
  const delayed = bounceReport({ action: 'delayed', status: '4.4.1', diagnostic: 'smtp; 451 4.4.1 no answer' })
  for (const report of [delayed, delayed, VACATION]) t.match(await bring(bounceAddress, report), taken)
  t.equal((await parts.look(messageId)).state, 'delivered')
  const notes = ((await parts.store.messageEvents(messageId)) ?? []).filter(({ kind }) => kind === 'email.reported')
  t.match(notes, [{ data: { report: 'delayed' } }])
  t.equal(notes.length, 1)
})

t.test('a bounce of a message that waits is a note, and does not hide the one that counts', async (t) => {
  const now = parts.clock.now()
  const messageId = newIdentifier('msg', now)
  const to = { name: null, address: 'waiting@example.com' }
  await acceptOne(parts.store, { now }, { id: messageId, to, expiresAt: now + DAY })
  const { bounceAddress } = tokensOf(messageId, parts.keyRing)
  t.match(await bring(bounceAddress, bounceReport()), taken)
  t.equal((await parts.look(messageId)).state, 'queued')
  t.same((await parts.eventKinds(messageId)).slice(1), ['email.reported'])

  await parts.deliveredMessage('other@example.com')
  t.equal((await parts.look(messageId)).state, 'delivered')
  t.match(await bring(bounceAddress, bounceReport()), taken)
  t.equal((await parts.look(messageId)).state, 'bounced')
})

t.test('a bounce that is faster than the record of its delivery waits for it', async (t) => {
  const { messageId, bounceAddress, finish } = await parts.sendingMessage('fast@example.com')
  const asked = reportsAsked
  const brought = bring(bounceAddress, bounceReport())
  await until('the report was put off', () => reportsAsked > asked)
  await finish()
  t.match(await brought, taken)
  t.equal((await parts.look(messageId)).state, 'bounced')
})

t.test('a complaint is told once and suppresses; what is no complaint does neither', async (t) => {
  const abuse = await parts.deliveredMessage('angry@example.com')
  for (let time = 0; time < 2; time++) t.match(await bring(abuse.complaintAddress, feedbackReport()), taken)
  t.match(await parts.look(abuse.messageId), { state: 'delivered', complainedAt: parts.clock.now() })
  t.same((await parts.eventKinds(abuse.messageId)).filter((kind) => kind === 'email.complained').length, 1)
  const events = (await parts.store.messageEvents(abuse.messageId)) ?? []
  const event = events.find(({ kind }) => kind === 'email.complained')
  t.same(event?.data, { message_id: abuse.messageId, recipient: 'angry@example.com', isp: 'gmail' })
  t.same(await suppressed('angry@example.com'), ['complaint all'])
  t.equal((await parts.metrics.complaints.get()).values[0]?.value, 1)

  const calm = await parts.deliveredMessage('calm@example.com')
  for (const type of ['not-spam', 'auth-failure']) {
    t.match(await bring(calm.complaintAddress, feedbackReport(type)), taken)
  }
  t.match(await parts.look(calm.messageId), { state: 'delivered', complainedAt: null })
  t.same(await suppressed('calm@example.com'), [])

  const returned = [`Message-ID: <${calm.complaintToken}@acme.com>`, 'Subject: Order']
  t.match(await bring(`fbl@${HOSTNAME}`, feedbackReport('abuse', returned)), taken)
  t.same(await suppressed('calm@example.com'), ['complaint all'], 'a report to the shared address')

  const hidden = await parts.deliveredMessage('hidden@example.com')
  const stated = `User-Agent: ISP\r\nOriginal-Mail-From: <${hidden.bounceAddress}>`
  const [withoutMessage] = feedbackReport().split('--b2\r\nContent-Type: message/rfc822')
  await bring(`fbl@${HOSTNAME}`, `${withoutMessage}--b2--`.replace('User-Agent: ISP/1.0', stated))
  t.same(await suppressed('hidden@example.com'), ['complaint all'], 'of a message that is not returned')

  const leaving = await parts.deliveredMessage('leaving@example.com')
  await bring(leaving.complaintAddress, feedbackReport('opt-out'))
  t.same(await suppressed('leaving@example.com'), ['unsubscribe all'])
  t.ok((await parts.eventKinds(leaving.messageId)).includes('email.unsubscribed'))
  const left = await parts.deliveredMessage('left@example.com')
  await bring(left.complaintAddress, feedbackReport('unsubscribe'))
  t.same(await suppressed('left@example.com'), ['unsubscribe all'])
})

t.test('a simulated recipient has its events and is never suppressed', async (t) => {
  const address = 'late@simulator.sternpost.test'
  const { messageId, bounceAddress, complaintAddress } = await parts.deliveredMessage(address)
  await bring([bounceAddress], bounceReport())
  await bring([complaintAddress], feedbackReport())
  t.same((await parts.eventKinds(messageId)).slice(-2), ['email.bounced', 'email.complained'])
  t.same(await suppressed(address), [])
})

t.test('old tokens change nothing: 35 days for bounces, 90 for complaints', async (t) => {
  const { messageId, bounceAddress, complaintAddress } = await parts.deliveredMessage('old@example.com')
  await parts.clock.advance(36 * DAY)
  t.match(await bring(bounceAddress, bounceReport()), taken)
  t.equal((await parts.look(messageId)).state, 'delivered')
  await parts.clock.advance(55 * DAY)
  t.match(await bring(complaintAddress, feedbackReport()), taken)
  t.equal((await parts.look(messageId)).complainedAt, null)
  t.same(await suppressed('old@example.com'), [])
})

t.test('mail to an unsubscribe address unsubscribes, whatever it says', async (t) => {
  const { messageId } = await parts.deliveredMessage('reader@example.com')
  const token = unsubscribeToken(messageId, 0, parts.keyRing.key('unsubscribe'))
  t.match(await bring(`u-${token}@${RETURN_PATH}`, 'From: reader@example.com\r\nSubject: unsubscribe\r\n\r\n'), taken)
  t.ok((await parts.eventKinds(messageId)).includes('email.unsubscribed'))
})

t.test('STARTTLS is offered where there is a certificate', async (t) => {
  const { port: own } = await parts.reports()
  const client = await smtpClient({ port: own })
  t.match(await client.greet(), /^250-STARTTLS$/m)
  await client.startTls()
  t.notMatch(await client.greet(), /STARTTLS/)
  t.match(await client.mail([`fbl@${HOSTNAME}`], 'Subject: secure\r\n\r\n'), taken)
  client.destroy()
  const { port: bare } = await parts.reports({ settings: { tls: { certificates: [], min_version: 'TLSv1.2' } } })
  const plain = await smtpClient({ port: bare })
  t.notMatch(await plain.greet(), /STARTTLS/)
  t.match(await plain.say('STARTTLS'), /^500 /)
  plain.destroy()
})

t.test('one mail may be about several messages', async (t) => {
  const all = [await parts.deliveredMessage('a@example.com'), await parts.deliveredMessage('b@example.com')]
  t.match(
    await bring(
      all.map(({ bounceAddress }) => bounceAddress),
      bounceReport(),
    ),
    taken,
  )
  for (const { messageId } of all) t.equal((await parts.look(messageId)).state, 'bounced')
})

t.test('forged reports change nothing, however many come', async (t) => {
  const many = process.env['TEST_SCALE'] === 'full' ? 10_000 : 500
  const victim = await parts.deliveredMessage('victim@example.com')
  const stranger = { ...parts.keyRing, key: () => createSecretKey(Buffer.alloc(32, 9)) }
  const before = await parts.eventKinds(victim.messageId)
  parts.metrics.reportsIgnored.reset()
  await parts.store.forgetUnmatchedReports(parts.clock.now() + 1)
  let client = await smtpClient({ port })
  await client.greet()
  for (let count = 0; count < many; count++) {
    if (count % 100 === 99) {
      client.destroy()
      client = await smtpClient({ port })
      await client.greet()
    }
    const forged = tokensOf(victim.messageId, stranger)
    const fields = {
      finalRecipient: `victim${count % 2 === 0 ? '' : count}@example.com`,
      originalEnvelopeId: `b-${forged.bounceToken}`,
      returned: [
        'To: victim@example.com',
        `Message-ID: <${forged.complaintToken}@acme.com>`,
        `X-Sternpost-Ref: ${victim.messageId}`,
        `Return-Path: <${forged.bounceAddress}>`,
      ],
    }
    const report = count % 2 === 0 ? bounceReport(fields) : feedbackReport('abuse', fields.returned)
    const reply = await client.mail([`fbl@${HOSTNAME}`], report, '')
    if (!taken.test(reply)) t.fail(reply)
  }
  client.destroy()
  t.same(await parts.eventKinds(victim.messageId), before)
  t.equal((await parts.look(victim.messageId)).state, 'delivered')
  t.same(await suppressed('victim@example.com'), [])
  const samples = await parts.store.listUnmatchedReports(1_000)
  t.equal(samples.length, 60, 'a bounded sample is kept')
  t.match(samples[0], { kind: 'complaint', recipient: `fbl@${HOSTNAME}`, sender: '', remoteAddress: '127.0.0.1' })
  const ignored = (await parts.metrics.reportsIgnored.get()).values
  t.equal(ignored.find(({ labels }) => labels.why === 'unmatched')?.value, many)
  t.equal(await parts.store.forgetUnmatchedReports(parts.clock.now() + 1), 60)
})

const CORPUS = new URL('../../../shared/corpora/bounces/files/', import.meta.url)
const noCorpus = existsSync(CORPUS) ? false : 'the corpora are not there'

t.test('real bounces and complaints without a token of ours change nothing', { skip: noCorpus }, async (t) => {
  const victim = await parts.deliveredMessage('victim2@example.com')
  const before = (await parts.store.searchMessages(everything())).messages.map(({ id, state }) => `${id} ${state}`)
  const step = process.env['TEST_SCALE'] === 'full' ? 1 : 10
  const files = readdirSync(CORPUS)
    .toSorted()
    .filter((_, index) => index % step === 0)
  let client = await smtpClient({ port })
  await client.greet()
  for (const [index, file] of files.entries()) {
    if (index % 100 === 99) {
      client.destroy()
      client = await smtpClient({ port })
      await client.greet()
    }
    // As a server would send it: lines end with CR LF, no NUL, dots are stuffed.
    const text = readFileSync(new URL(file, CORPUS), 'latin1')
      .replaceAll('\0', '')
      .replace(/\r\n?|\n/g, '\r\n')
      .replace(/^\./gm, '..')
    const reply = await client.mail([`fbl@${HOSTNAME}`], text, '')
    if (!taken.test(reply)) t.fail(`${file}: ${reply}`)
  }
  client.destroy()
  t.same(
    (await parts.store.searchMessages(everything())).messages.map(({ id, state }) => `${id} ${state}`),
    before,
  )
  t.equal((await parts.look(victim.messageId)).state, 'delivered')
  t.same(await suppressed('victim2@example.com'), [])
})

t.test('mail for postmaster goes on to the operator, within limits, and never back', async (t) => {
  const { port: own } = await parts.reports({ settings: { operator: { email: 'ops@example.org' } } })
  await verified(parts, HOSTNAME)
  parts.stored.splice(0)
  const complaint = 'From: neighbour@example.org\r\nSubject: your spam\r\n\r\nPlease stop.'
  t.match(await bring(`abuse@${HOSTNAME}`, complaint, own), taken)
  t.match(await bring(`abuse@${HOSTNAME}`, complaint, own), taken, 'the same again is not sent again')
  const [forwarded, ...others] = parts.stored.splice(0)
  t.equal(others.length, 0)
  t.same(
    forwarded?.messages.map(({ to }) => to.address),
    ['ops@example.org'],
  )
  const text = Buffer.from(forwarded?.content.raw ?? []).toString()
  t.match(text, `From: "Sternpost" <postmaster@${HOSTNAME}>\r\n`)
  t.match(text, 'Auto-Submitted: auto-generated\r\n')
  t.match(text.replaceAll('\r\n', ''), Buffer.from(`${complaint}\r\n`).toString('base64'))
  t.match(text, '. The mail is attached.')
  const large = `${complaint}\r\n${'a line of it\r\n'.repeat(100_000)}`
  t.match(await bring(`abuse@${HOSTNAME}`, large, own), taken)
  const cut = Buffer.from(parts.stored.splice(0)[0]?.content.raw ?? []).toString()
  t.match(cut, /\. Of its 14000\d\d bytes the first 1048576 are attached\./)

  t.match(await bring(`postmaster@${HOSTNAME}`, text, own), taken)
  t.equal(parts.stored.splice(0).length, 0, 'what was forwarded is not forwarded again')
  for (let round = 0; round < 3; round++) {
    const some = Array.from({ length: 10 }, (_, index) => `${complaint} ${round} ${index}`)
    await Promise.all(some.map((text) => bring(`postmaster@${HOSTNAME}`, text, own)))
  }
  t.equal(parts.stored.splice(0).length, 17, 'twenty an hour, the three of above among them')
  t.match(await bring(`postmaster@${HOSTNAME}`, complaint), taken, 'without an operator it is taken and dropped')
  t.equal(parts.stored.splice(0).length, 0)

  const settings = { operator: { email: 'gone@example.org' } }
  const { port: another } = await parts.reports({ settings })
  const now = parts.clock.now()
  await parts.store.addSuppression({
    id: newIdentifier('sup', now),
    email: settings.operator.email,
    reason: 'complaint',
    scope: 'all',
    domain: null,
    owners: [],
    isTest: false,
    messageId: null,
    createdAt: now,
  })
  t.match(await bring(`postmaster@${HOSTNAME}`, `${complaint} Now.`, another), taken)
  for (const why of ['own-mail', 'too-many', 'no-operator', 'suppressed']) {
    t.match(parts.log.join('\n'), new RegExp(`"level":"warn".*"kind":"operator","result":"${why}"`))
  }
})

t.test('mail for postmaster that cannot be kept is none of those of the hour', async (t) => {
  let isFull = true
  let refusal = new ServiceError('unavailable', 'the disk is full')
  const accept = createAcceptSubmission(parts.options)
  const { port: own } = await parts.reports({
    settings: { operator: { email: 'ops@example.org' } },
    async acceptSubmission(request, caller) {
      if (isFull) throw refusal
      return accept(request, caller)
    },
  })
  const complaint = 'From: neighbour@example.org\r\nSubject: still your spam\r\n\r\nPlease stop.'
  for (let time = 0; time < 25; time++) t.match(await bring(`abuse@${HOSTNAME}`, complaint, own), /^45\d /)
  refusal = new ServiceError('ip_not_warmed', 'every IP is cold', { headers: { 'Retry-After': '3600' } })
  t.match(await bring(`abuse@${HOSTNAME}`, complaint, own), /^451 /, 'until an IP may send it')
  isFull = false
  parts.stored.splice(0)
  t.match(await bring(`abuse@${HOSTNAME}`, complaint, own), taken)
  t.equal(parts.stored.splice(0).length, 1, 'it goes on when it comes again')
})

t.test('who writes to us stands in the log as `log.recipients` says', async (t) => {
  const { port: own } = await parts.reports({ recipients: () => 'domain' })
  const { bounceAddress } = await parts.deliveredMessage('private@example.com')
  const client = await smtpClient({ port: own })
  await client.greet()
  for (const sender of ['private@example.com', '']) {
    parts.log.splice(0)
    t.match(await client.mail([bounceAddress], VACATION, sender), taken)
    t.match(parts.log.join('\n'), `"sender":"${sender === '' ? '' : 'example.com'}"`)
    t.notMatch(parts.log.join('\n'), 'private@')
  }
  client.destroy()
})

t.test('a genuine token about a message that is not kept any more changes nothing', async (t) => {
  const { bounceAddress, complaintAddress } = tokensOf(newIdentifier('msg', parts.clock.now()), parts.keyRing)
  t.match(await bring(bounceAddress, bounceReport()), taken)
  t.match(await bring(complaintAddress, feedbackReport()), taken)
  t.match(parts.log.join('\n'), '"result":"unknown-message"')
  const token = unsubscribeToken(newIdentifier('msg', parts.clock.now()), 0, parts.keyRing.key('unsubscribe'))
  t.match(await bring(`u-${token}@${RETURN_PATH}`, 'Subject: unsubscribe\r\n\r\n'), taken)
  t.match(parts.log.join('\n'), /"kind":"unsubscribe","result":"unknown-message"/)
})

t.test('while the store does not answer, reports are asked to come again', async (t) => {
  const { messageId, bounceAddress } = await parts.deliveredMessage('again@example.com')
  let isDown = true
  const down = Object.assign(new Error('disk'), { code: 'SQLITE_IOERR' })
  const { port: shaky } = await parts.reports({
    store: {
      ...parts.store,
      recordReport: async (report) => (isDown ? Promise.reject(down) : parts.store.recordReport(report)),
    },
  })
  t.match(await bring(bounceAddress, bounceReport(), shaky), /^451 4\.3\.0 /)
  isDown = false
  t.match(await bring(bounceAddress, bounceReport(), shaky), taken)
  t.equal((await parts.look(messageId)).state, 'bounced')
  const { port: blind } = await parts.reports({ store: { ...parts.store, isReturnPath: () => Promise.reject(down) } })
  t.match(await bring(bounceAddress, bounceReport(), blind), /^503 /, 'no recipient was taken')
  const client = await smtpClient({ port: blind })
  await client.greet()
  await client.say('MAIL FROM:<>')
  t.match(await client.say(`RCPT TO:<${bounceAddress}>`), /^451 4\.3\.0 /)
  client.destroy()
})
