import t from 'tap'
import { DAY, HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import {
  createJudgeReply,
  type JudgedMessage,
  type Judgement,
  type JudgeRequest,
} from '../../src/delivery/settle/judge-reply.ts'
import { nextTryAt, PATH_WAITS, scheduledWait, wishedWait } from '../../src/delivery/settle/retry-schedule.ts'
import { judgeDns } from '../../src/delivery/settle/judge-dns.ts'
import { createClassifier } from '../../src/mail/reply/classify-reply.ts'
import { readSmtpReply } from '../../src/mail/reply/smtp-reply.ts'
import type { MailHosts } from '../../src/network/mail-hosts.ts'

const NOW = Date.UTC(2026, 10, 21, 12)
const RETRY_MINUTES = [1, 5, 15, 30, 60, 120, 240, 240, 240, 360, 360, 360, 480, 480, 480, 480]
const RETRY = RETRY_MINUTES.map((minutes) => minutes * MINUTE)
const SETTINGS = {
  retry: RETRY,
  retry_jitter: 0.2,
  greylist_retry: [5 * MINUTE, 15 * MINUTE],
  uncertain_retry: 5 * MINUTE,
}
const rule = (id: string, match: string, category: string) => ({
  id,
  provider: null,
  stage: [],
  class: null,
  match,
  category,
  weak: false,
})
const judge = createJudgeReply(
  SETTINGS,
  createClassifier([
    rule('greylist', 'gr[ae]y.?list', 'greylist'),
    rule('blocklist', 'spamhaus', 'ip_block'),
    rule('rate', 'too many', 'rate'),
    rule('auth', 'DMARC', 'auth_failed'),
    rule('spam', 'spam', 'spam_content'),
  ]),
)
const MESSAGE: JudgedMessage = {
  id: 'msg_01kapg6t3vq8x2m5r7w9y4c6de',
  attempts: 0,
  acceptedAt: NOW,
  expiresAt: NOW + 72 * HOUR,
  pathFailures: 0,
  ambiguousCount: 0,
  isPossibleDuplicate: false,
  recipientDomain: 'dest.test',
}

function judged(end: JudgeRequest['end'], message: Partial<JudgedMessage> = {}, pathWait = 0): Judgement {
  return judge({ end, message: { ...MESSAGE, ...message }, now: NOW, provider: null, pathWait, isProbe: false })
}

type Refusing = 'mail' | 'rcpt' | 'data' | 'dot'

function refused(stage: Refusing, raw: string, message: Partial<JudgedMessage> = {}): Judgement {
  const reply = readSmtpReply(raw)
  if (reply === undefined) throw new Error(raw)
  return judged({ kind: 'refused', stage, reply }, message)
}

/** Minutes until the next try. */
function minutes({ outcome }: Judgement): number {
  return 'retryAt' in outcome ? (outcome.retryAt - NOW) / MINUTE : NaN
}

t.test('the schedule grows, repeats its end and moves by at most a fifth, the same each time', async (t) => {
  for (let attempt = 1; attempt <= 20; attempt++) {
    const base = RETRY[Math.min(attempt, 16) - 1] ?? 0
    const waits = Array.from({ length: 200 }, (_, index) => scheduledWait(RETRY, attempt, `msg_${index}`, 0.2))
    t.ok(
      waits.every((wait) => wait >= base * 0.8 && wait <= base * 1.2),
      `attempt ${attempt}`,
    )
    const spread = Math.max(...waits) - Math.min(...waits)
    t.ok(spread > base * 0.3, `attempt ${attempt} is spread`)
    t.equal(scheduledWait(RETRY, attempt, 'msg_7', 0.2), waits[7])
    t.equal(scheduledWait(RETRY, attempt, 'msg_7', 0), base)
  }
})

t.test('the last try is one minute before the end when that is a quarter of an hour away', async (t) => {
  t.equal(nextTryAt(NOW, HOUR, NOW + 2 * HOUR), NOW + HOUR)
  t.equal(nextTryAt(NOW, 2 * HOUR, NOW + HOUR), NOW + 59 * MINUTE)
  t.equal(nextTryAt(NOW, 2 * HOUR, NOW + 16 * MINUTE), NOW + 15 * MINUTE)
  t.equal(nextTryAt(NOW, 2 * HOUR, NOW + 16 * MINUTE - 1), null)
  t.equal(nextTryAt(NOW, 5 * MINUTE, NOW + 5 * MINUTE), null)
  t.equal(nextTryAt(NOW, 5 * MINUTE, NOW - HOUR), null)
  t.equal(nextTryAt(NOW, 5 * MINUTE, NOW - HOUR - 1), NOW + 5 * MINUTE, 'the clock was set meanwhile')
})

t.test('a host may wish for a time between one minute and four hours', async (t) => {
  const cases: [string, number | null][] = [
    ['450 4.7.1 Greylisted, please try again in 300 seconds', 5 * MINUTE],
    ['451 try again after 20 minutes', 20 * MINUTE],
    ['421 Try again in 5 seconds', MINUTE],
    ['421 please retry after 2 hours', 2 * HOUR],
    ['421 try again in 3 d', null],
    ['451 Try again in 90 h', 4 * HOUR],
    ['451 try again later', null],
    ['450 4.2.0 retry in 600s', 10 * MINUTE],
    ['550 no such user 300 m', null],
  ]
  for (const [text, wait] of cases) t.equal(wishedWait(text), wait, text)
  t.equal(minutes(refused('rcpt', '451 4.7.1 try again in 30 minutes')), 30)
})

t.test('a wait text made to be slow is read at once', async (t) => {
  const start = performance.now()
  wishedWait(`try ${'again try '.repeat(10_000)}`.slice(0, 2_048))
  t.ok(performance.now() - start < 2_000)
})

t.test('2xx to the dot is delivered whatever its text says', async (t) => {
  const reply = readSmtpReply('250 spam is rejected')
  if (reply === undefined) throw new Error('no reply')
  const { outcome, ...facts } = judged({ kind: 'accepted', reply })
  t.strictSame(outcome, { kind: 'delivered' })
  t.match(facts, { stage: 'dot', reply: '250 spam is rejected', code: '250' })
})

t.test('4xx at every stage is deferred by the schedule', async (t) => {
  for (const stage of ['mail', 'rcpt', 'data', 'dot'] as const) {
    for (const [attempts, wait] of [
      [0, 1],
      [1, 5],
      [2, 15],
      [30, 480],
    ] as const) {
      const judgement = refused(stage, '450 4.2.0 mailbox busy', { attempts, expiresAt: NOW + 7 * DAY })
      t.equal(judgement.outcome.kind, 'deferred')
      t.ok(Math.abs(minutes(judgement) - wait) <= wait * 0.2, `${stage} ${attempts}`)
    }
  }
})

t.test('421 is deferred, never a bounce', async (t) => {
  for (const stage of ['mail', 'rcpt', 'data', 'dot'] as const) {
    t.equal(refused(stage, '421 5.7.1 spam').outcome.kind, 'deferred')
  }
})

t.test('5xx ends by its category', async (t) => {
  const cases: [Refusing, string, string, string, string][] = [
    ['rcpt', '550 5.1.1 no such user', 'hard', 'invalid_recipient', '5.1.1'],
    ['rcpt', '550 no', 'undetermined', 'unknown', '5.0.0'],
    ['dot', '554 5.7.1 this is spam', 'block', 'spam_content', '5.7.1'],
    ['mail', '550 no', 'block', 'sender_refused', '5.1.8'],
    ['mail', '550 5.1.1 no such user', 'block', 'sender_refused', '5.1.1'],
    ['dot', '552 5.3.4 too big', 'soft', 'too_large', '5.3.4'],
  ]
  for (const [stage, raw, type, category, code] of cases) {
    t.match(
      refused(stage, raw),
      { outcome: { kind: 'bounced', bounce: { type, category, code, description: raw } }, stage },
      raw,
    )
  }
})

t.test('a refusal of us is not the fault of the message', async (t) => {
  t.match(refused('rcpt', '554 5.7.1 see spamhaus'), {
    outcome: { kind: 'deferred' },
    category: 'ip_block',
    rule: 'blocklist',
  })
  t.ok(minutes(refused('rcpt', '554 5.7.1 see spamhaus')) >= 5, 'not asked again at once')
  t.match(
    refused('rcpt', '554 5.7.1 see spamhaus', { attempts: 40 }).outcome,
    { kind: 'deferred' },
    'only the lifetime ends it',
  )
  t.match(refused('dot', '550 5.7.26 DMARC', { attempts: 1 }).outcome, { kind: 'deferred' })
  t.match(refused('dot', '550 5.7.26 DMARC', { attempts: 2 }).outcome, { kind: 'bounced', bounce: { type: 'block' } })
  t.equal(minutes(refused('rcpt', '552 5.2.2 mailbox full')), 8 * 60, 'three more attempts over 24 h')
  t.match(refused('rcpt', '552 5.2.2 mailbox full', { attempts: 3 }).outcome, {
    kind: 'bounced',
    bounce: { type: 'soft' },
  })
})

t.test('greylisting waits 5 and 15 minutes, then the schedule', async (t) => {
  for (const raw of ['450 4.2.0 Greylisted', '451 4.7.1 please try again later', '450 please retry']) {
    t.match(refused('rcpt', raw), { category: 'greylist' }, raw)
    t.equal(minutes(refused('rcpt', raw)), 5, raw)
    t.equal(minutes(refused('rcpt', raw, { attempts: 1 })), 15, raw)
  }
  t.not(minutes(refused('rcpt', '450 4.2.0 Greylisted', { attempts: 2 })), 15)
  t.match(refused('rcpt', '450 please retry', { attempts: 3 }), { category: 'temporary' }, 'too late for greylisting')
  t.match(refused('rcpt', '451 4.7.1 too many, try again later'), { category: 'rate' }, 'a block wins')
})

t.test('what no attempt fits into any more has expired', async (t) => {
  const times = { acceptedAt: NOW - 72 * HOUR + MINUTE, expiresAt: NOW + MINUTE }
  const judgement = refused('rcpt', '450 4.2.0 busy', { attempts: 9, ...times })
  t.match(judgement.outcome, {
    kind: 'expired',
    bounce: {
      type: 'soft',
      category: 'expired',
      code: '4.4.7',
      description: 'not delivered within 72 h; last answer: 450 4.2.0 busy',
    },
  })
  t.match(judged({ kind: 'lost', stage: 'mail', reason: 'gone' }, { expiresAt: NOW + 30 * SECOND }).outcome, {
    kind: 'expired',
  })
  const doubted = { isPossibleDuplicate: true, ...times }
  t.match(refused('rcpt', '450 4.2.0 busy', doubted).outcome, {
    kind: 'expired',
    bounce: {
      type: 'undetermined',
      category: 'ambiguous',
      code: '4.4.2',
      description: /^it may have been delivered.*busy/,
    },
  })
})

t.test('a connection lost before the dot is deferred', async (t) => {
  t.match(judged({ kind: 'lost', stage: 'data', reason: 'gone' }), {
    outcome: { kind: 'deferred' },
    stage: 'data',
    code: '4.4.2',
  })
})

t.test('a lost answer to the dot is ambiguous once, then the end with the doubt stated', async (t) => {
  const end = { kind: 'unanswered', reason: 'gone' } as const
  t.match(judged(end).outcome, { kind: 'ambiguous', retryAt: NOW + 5 * MINUTE })
  t.match(judged(end, { ambiguousCount: 1 }).outcome, {
    kind: 'bounced',
    bounce: { type: 'undetermined', code: '4.4.2', description: /may have been delivered/ },
  })
})

t.test('a probe that is refused as a block is deferred, whatever the category says', async (t) => {
  const probe = (raw: string): Judgement => {
    const reply = readSmtpReply(raw)
    if (reply === undefined) throw new Error(raw)
    const end = { kind: 'refused', stage: 'dot', reply } as const
    return judge({ end, message: MESSAGE, now: NOW, provider: null, pathWait: 0, isProbe: true })
  }
  t.match(refused('dot', '554 5.7.1 looks like spam').outcome, { kind: 'bounced' })
  t.match(probe('554 5.7.1 looks like spam'), { outcome: { kind: 'deferred' }, category: 'spam_content' })
  t.match(probe('550 5.1.1 no such user').outcome, { kind: 'bounced' }, 'about the address')
})

t.test('what the host announced ends it before MAIL', async (t) => {
  t.match(judged({ kind: 'unacceptable', cause: 'too_large', reason: 'x' }).outcome, {
    bounce: { type: 'soft', code: '5.3.4' },
  })
  t.match(judged({ kind: 'unacceptable', cause: 'not_ascii', reason: 'x' }).outcome, {
    bounce: { type: 'block', code: '5.6.7' },
  })
})

t.test('nothing before MAIL ever bounces; it waits as long as the path or its own back-off', async (t) => {
  const end: JudgeRequest['end'] = {
    kind: 'path-failed',
    stage: 'banner',
    code: '4.3.2',
    reason: '554 go away',
    host: 'mx.test',
    reply: null,
  }
  for (let pathFailures = 0; pathFailures < 10; pathFailures++) {
    const judgement = judged(end, { pathFailures })
    const base = (PATH_WAITS[Math.min(pathFailures, 6)] ?? 0) / MINUTE
    t.equal(judgement.outcome.kind, 'path-failed')
    t.ok(Math.abs(minutes(judgement) - base) <= base * 0.2)
  }
  t.equal(minutes(judged(end, {}, 30 * MINUTE)), 30)
  t.equal(minutes(judged(end, { expiresAt: NOW + 30 * SECOND })), 0.5, 'the store ends it when its time is over')
})

t.test('what the DNS says about a domain without hosts', async (t) => {
  const dns = (answer: MailHosts, message: Partial<JudgedMessage> = {}, saidFor = 0): Judgement => {
    const isWithout = answer.kind !== 'hosts' && answer.kind !== 'none-accepted'
    if (!isWithout) throw new TypeError('an answer without hosts is asked for')
    return judgeDns({ ...answer, since: NOW - saidFor }, { ...MESSAGE, ...message }, NOW, 0)
  }
  t.match(dns({ kind: 'null-mx' }).outcome, { kind: 'bounced', bounce: { type: 'hard', code: '5.1.10' } })
  t.match(dns({ kind: 'no-name' }), { outcome: { kind: 'path-failed', retryAt: NOW + 10 * MINUTE } })
  t.match(dns({ kind: 'no-name' }, {}, 10 * MINUTE).outcome, {
    kind: 'bounced',
    bounce: { type: 'hard', code: '5.1.2' },
  })
  t.match(
    dns({ kind: 'no-name' }, { pathFailures: 5 }, 9 * MINUTE).outcome,
    { kind: 'path-failed' },
    'failures of another kind confirm nothing',
  )
  t.match(dns({ kind: 'no-address' }), { outcome: { kind: 'path-failed', retryAt: NOW + HOUR }, code: '4.4.4' })
  t.match(
    dns({ kind: 'no-address' }, { pathFailures: 1, acceptedAt: NOW - HOUR }, 59 * MINUTE).outcome,
    { kind: 'path-failed' },
    'the lookups are too close',
  )
  t.match(dns({ kind: 'no-address' }, {}, HOUR).outcome, { kind: 'bounced', bounce: { code: '5.1.2' } })
  t.match(dns({ kind: 'refused-addresses' }), {
    outcome: { kind: 'path-failed', retryAt: NOW + MINUTE },
    code: '4.4.6',
  })
  t.match(dns({ kind: 'no-answer', reason: 'SERVFAIL' }, { pathFailures: 9 }), {
    outcome: { kind: 'path-failed', retryAt: NOW + HOUR },
    code: '4.4.3',
    reply: /SERVFAIL/,
  })
})
