/**
 * What `explain` says of a message that is on its way: the sentence for each place, and when it says that something is
 * wrong.
 */
import t from 'tap'
import { EVERYTHING } from '../../src/mail/reach.ts'
import { HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import type { ThreadPlace, Whereabouts } from '../../src/mail/whereabouts.ts'
import { createExplainMessage } from '../../src/messages/lookup/explain-message.ts'
import { explainSending, type SendingReport } from '../../src/messages/lookup/explain-sending.ts'
import { testStore } from '../senders/sender-parts.ts'
import { acceptOne, claim, delivered, NOW, outcomeRecord } from '../store/store-samples.ts'

const ROAD = { from: '203.0.113.5', to: 'example.net' }
const ID = 'msg_01kapg6t3vq8x2m5r7w9y4c6de'
const LONGEST = 10 * MINUTE

function say(where: Whereabouts | undefined, ageMilliseconds = 12 * SECOND): SendingReport {
  return explainSending({
    message: { id: ID, claimedAt: NOW - ageMilliseconds },
    where,
    longestStageMilliseconds: LONGEST,
    now: NOW,
  })
}

const inThread = (place: Partial<ThreadPlace> | null): Whereabouts => ({
  kind: 'thread',
  thread: 2,
  ...ROAD,
  place:
    place === null
      ? null
      : { stage: 'dot', milliseconds: 3 * SECOND, host: 'mx.example.net', address: '198.51.100.7', ...place },
})

t.test('every place has its sentence, and nothing is to be done', async (t) => {
  const nowhere = { host: null, address: null }
  const sends = 'delivery thread 2 sends it from 203.0.113.5 to mx.example.net [198.51.100.7]'
  const sentences: [Whereabouts, string][] = [
    [{ kind: 'placing' }, 'its hosts are looked up in the DNS, and the IP is chosen that sends it'],
    [{ kind: 'path', ...ROAD }, 'it waits for room on the path from 203.0.113.5 to example.net'],
    [
      { kind: 'recording', milliseconds: 3 * SECOND },
      'what became of it has been on the way into the store for 3 seconds',
    ],
    [
      inThread({ stage: 'queue', ...nowhere }),
      'in delivery thread 2 it has waited for a connection from 203.0.113.5 to example.net for 3 seconds',
    ],
    [
      inThread({ stage: 'connect' }),
      'delivery thread 2 began to connect from 203.0.113.5 to mx.example.net [198.51.100.7] 3 seconds ago',
    ],
    [inThread({ stage: 'render' }), `${sends}; its content is being read and signed, for 3 seconds`],
    [inThread({ stage: 'turn' }), `${sends}; it has waited for the message before it for 3 seconds`],
    [inThread({ stage: 'mail' }), `${sends}; it has waited for the answer to MAIL for 3 seconds`],
    [inThread({ stage: 'rcpt' }), `${sends}; it has waited for the answer to RCPT for 3 seconds`],
    [inThread({ stage: 'data' }), `${sends}; it has waited for the answer to DATA for 3 seconds`],
    [inThread({ stage: 'body' }), `${sends}; the last piece of its content began to leave 3 seconds ago`],
    [inThread({ stage: 'mark' }), `${sends}; the final dot has waited for the store for 3 seconds`],
    [inThread({ stage: 'dot' }), `${sends}; the final dot went out 3 seconds ago`],
    [inThread({ milliseconds: 200 }), `${sends}; the final dot went out less than a second ago`],
  ]
  for (const [where, words] of sentences) {
    const { summary, check, advice } = say(where)
    t.equal(summary, `It has been on its way for 12 seconds: ${words}.`)
    t.match(check, { check: 'delivery', status: 'pass', seen: /\w/ })
    t.equal(advice, null)
  }
})

t.test('what stays in one place for more than twice the longest stage is a problem', async (t) => {
  const patience = 2 * LONGEST
  t.equal(say(inThread({ milliseconds: patience }), patience).advice, null)
  const stuck = say(inThread({ milliseconds: patience + SECOND }), patience + MINUTE)
  t.equal(
    stuck.summary,
    'It has been on its way for 21 minutes: delivery thread 2 sends it from 203.0.113.5 to mx.example.net ' +
      '[198.51.100.7]; the final dot went out 20 minutes ago. ' +
      'For 20 minutes it has not moved there, and no stage of a delivery takes so long.',
  )
  t.same(stuck.check, { check: 'delivery', status: 'fail', seen: 'delivery thread 2, for 20 minutes' })
  t.match(stuck.advice, [/still waits for it/, /^A restart of the server frees it at once/, new RegExp(`log.*${ID}`)])
  t.equal(say(inThread({}), 3 * patience).advice, null, 'many stages may take longer together')
  t.equal(say({ kind: 'recording', milliseconds: SECOND }, 3 * patience).advice, null)
  t.equal(say({ kind: 'placing' }, patience).advice, null)
  t.match(say({ kind: 'placing' }, patience + SECOND), {
    summary: /For 20 minutes it has not moved there/,
    check: { status: 'fail' },
    advice: [/\w/],
  })
  t.match(say({ kind: 'recording', milliseconds: patience + SECOND }, patience + SECOND).check, {
    status: 'fail',
    seen: 'record of its outcome, for 20 minutes',
  })
})

t.test('behind other messages it may wait for long', async (t) => {
  const patience = 2 * LONGEST
  for (const stage of ['queue', 'turn'] as const) {
    t.match(say(inThread({ stage, milliseconds: patience + SECOND }), patience + MINUTE), {
      summary: /Other messages are before it\.$/,
      check: { status: 'warn' },
      advice: null,
    })
  }
  t.match(say({ kind: 'path', ...ROAD }, patience), { check: { status: 'pass' }, advice: null })
  t.match(say({ kind: 'path', ...ROAD }, patience + SECOND), { check: { status: 'warn' }, advice: null })
})

t.test('a thread that does not answer is told', async (t) => {
  const silent = say(inThread(null))
  t.equal(
    silent.summary,
    'It has been on its way for 12 seconds: delivery thread 2 has it, to send it from ' +
      '203.0.113.5 to example.net, and did not answer within a second.',
  )
  t.same(silent.check, { check: 'delivery', status: 'warn', seen: 'delivery thread 2, which does not answer' })
  t.equal(silent.advice, null)
  t.match(say(inThread(null), 2 * LONGEST + SECOND), {
    summary: /did not answer within a second\. How far it is there is not known\.$/,
    check: { status: 'fail' },
    advice: [/\w/],
  })
})

t.test('what another node has is to be asked for there', async (t) => {
  t.match(say({ kind: 'elsewhere', node: 'mail-2' }, HOUR), {
    summary: 'It has been on its way for 60 minutes: the node mail-2 has it.',
    check: { status: 'pass', seen: 'node mail-2' },
    advice: [`There "sternpost queue explain ${ID}" says how far it is.`],
  })
})

t.test("what is in nobody's hand is said plainly, but for the moment after its claim", async (t) => {
  t.match(say(undefined, SECOND), {
    summary: 'It has been on its way for 1 second: it was just taken from the queue.',
    check: { status: 'pass' },
    advice: null,
  })
  const lost = say(undefined)
  t.equal(
    lost.summary,
    "It has been on its way for 12 seconds, and it is in nobody's hand: no part of delivery has it.",
  )
  t.same(lost.check, { check: 'delivery', status: 'fail', seen: "in nobody's hand" })
  t.match(lost.advice, [/not lost.*every minute.*by itself/, /^A restart of the server/, /^Report it/])
})

t.test("a message that ends between the two questions is not said to be in nobody's hand", async (t) => {
  const store = await testStore(t)
  const { epoch } = await store.beginEpoch(NOW, NOW)
  const id = await acceptOne(store, {})
  const [message] = await claim(store, epoch, NOW, 1)
  if (message === undefined) throw new Error('nothing was claimed')
  let isAnswered = false
  const explain = createExplainMessage({
    store,
    clock: { now: () => NOW + MINUTE, after: () => () => undefined },
    domains: { find: async () => null },
    classify: () => ({ category: 'unknown', rule: null, suppress: 'never', inReports: null }),
    whyWaiting: () => undefined,
    longestStageMilliseconds: LONGEST,
    async whereIs(asked) {
      t.match(asked, { id, leaseEpoch: epoch })
      if (isAnswered) await store.recordOutcomes({ epoch, now: NOW, outcomes: [outcomeRecord(message, delivered)] })
      return undefined
    },
  })
  t.match(await explain(id, EVERYTHING), {
    state: 'sending',
    summary: /^It has been on its way for 60 seconds, and it is in nobody's hand/,
    waiting_for: null,
    checks: [{ check: 'delivery', status: 'fail' }],
    advice: [/not lost/, String, String],
  })
  isAnswered = true
  t.match(await explain(id, EVERYTHING), {
    state: 'delivered',
    summary: /took it/,
    checks: { length: 0 },
    advice: ['Nothing to do.'],
  })
})
