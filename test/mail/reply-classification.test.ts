/**
 * SMTP replies: reading them, the category of a refusal, and the bounce that a customer sees.
 */
import fc from 'fast-check'
import t from 'tap'
import { BOUNCE_CATEGORIES, BOUNCE_CATEGORY_NAMES } from '../../src/mail/reply/bounce-category.ts'
import { bounceFor, createClassifier, type BounceRule } from '../../src/mail/reply/classify-reply.ts'
import {
  MOST_REPLY_CHARACTERS,
  readSmtpReply,
  type ReportStage,
  type SmtpReply,
  type SmtpStage,
} from '../../src/mail/reply/smtp-reply.ts'
import { shippedClassifier } from '../support/corpus-score.ts'

const STAGES: SmtpStage[] = ['connect', 'banner', 'ehlo', 'starttls', 'mail', 'rcpt', 'data', 'dot']

function rule(fields: Partial<BounceRule> & { id: string; match: string; category: string }): BounceRule {
  return { provider: 'any', stage: [], class: null, weak: false, ...fields }
}

function reply(raw: string): SmtpReply {
  const read = readSmtpReply(raw)
  if (read === undefined) throw new Error(`no reply: ${raw}`)
  return read
}

t.test('a reply is read to code, enhanced code and one line of text', async (t) => {
  const cases: [string, SmtpReply | undefined][] = [
    ['250 ok', { code: 250, enhancedCode: null, text: '250 ok' }],
    ['354', { code: 354, enhancedCode: null, text: '354' }],
    ['550\r\n', { code: 550, enhancedCode: null, text: '550' }],
    ['550 5.1.1 no such user\r\n', { code: 550, enhancedCode: '5.1.1', text: '550 5.1.1 no such user' }],
    ['550 5.1.1: no', { code: 550, enhancedCode: '5.1.1', text: '550 5.1.1: no' }],
    ['550 #5.1.0 Address rejected.', { code: 550, enhancedCode: '5.1.0', text: '550 #5.1.0 Address rejected.' }],
    [
      '550-5.1.1 No\r\n550-5.1.1 such\r\n550 5.1.1 user',
      { code: 550, enhancedCode: '5.1.1', text: '550-5.1.1 No such user' },
    ],
    ['421-a\n421 b', { code: 421, enhancedCode: null, text: '421-a b' }],
    ['450 4.2.1 a\u0000b\u001b[31m\u0085c\td', { code: 450, enhancedCode: '4.2.1', text: '450 4.2.1 a b [31m c d' }],
    ['550 4.1.1 the classes disagree', { code: 550, enhancedCode: null, text: '550 4.1.1 the classes disagree' }],
    ['550 5.1.1.2 is no code', { code: 550, enhancedCode: null, text: '550 5.1.1.2 is no code' }],
    ['550 5.7.1234 is none either', { code: 550, enhancedCode: null, text: '550 5.7.1234 is none either' }],
    ['550 see 5.1.1', { code: 550, enhancedCode: null, text: '550 see 5.1.1' }],
    ['550-a\r\n250 b', undefined],
    ['', undefined],
    ['hello', undefined],
    ['5500 too many digits', undefined],
    ['150 below', undefined],
    ['650 above', undefined],
    ['55x', undefined],
  ]
  for (const [raw, expected] of cases) t.strictSame(readSmtpReply(raw), expected, JSON.stringify(raw))
})

t.test('no reply throws, whatever a server sends, and its text is short and clean', async (t) => {
  const special = fc.constantFrom('550 ', '550-', '5.1.1 ', '\r\n', '\n', '\r', '\u0000')
  const line = fc.oneof(fc.string({ unit: 'binary' }), special)
  const raw = fc.array(line, { maxLength: 30 }).map((parts) => `550${parts.join('')}`)
  const classify = createClassifier([rule({ id: 'any', match: '.', category: 'policy', weak: true })])
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(raw, fc.constantFrom(...STAGES), (text, stage) => {
        const read = readSmtpReply(text)
        if (read === undefined) return true
        const bounce = bounceFor(classify(read, stage, null).category, read, 'no reply')
        return (
          read.text.length <= MOST_REPLY_CHARACTERS &&
          read.text.isWellFormed() &&
          !/\p{Cc}/u.test(read.text) &&
          /^[245]\.\d{1,3}\.\d{1,3}$/.test(bounce.code) &&
          bounce.description !== '' &&
          !/\p{Cc}/u.test(bounce.description)
        )
      }),
      { numRuns: 1_000 },
    ),
  )
  t.equal(readSmtpReply(`550 ${'x'.repeat(100_000)}`)?.text.length, MOST_REPLY_CHARACTERS)
  const cut = readSmtpReply(`550 ${'x'.repeat(MOST_REPLY_CHARACTERS - 5)}😀`)
  t.equal(cut?.text.isWellFormed(), true, 'no half character')
})

t.test('a code alone stands for a category, and what it means depends on the stage', async (t) => {
  const classify = createClassifier([])
  const cases: [string, SmtpStage, string][] = [
    ['550 5.1.1 x', 'rcpt', 'invalid_recipient'],
    ['550 5.1.1 x', 'dot', 'invalid_recipient'],
    ['550 5.1.1 x', 'mail', 'sender_refused'],
    ['550 5.1.1 x', 'data', 'unknown'],
    ['550 5.1.1 x', 'ehlo', 'unknown'],
    ['550 5.1.0 x', 'rcpt', 'invalid_recipient'],
    ['554 5.1.0 x', 'rcpt', 'unknown'],
    ['550 5.1.0 x', 'dot', 'unknown'],
    ['550 5.1.2 x', 'rcpt', 'bad_domain'],
    ['550 5.1.3 x', 'rcpt', 'bad_address_syntax'],
    ['550 5.1.6 x', 'rcpt', 'moved'],
    ['550 5.1.8 x', 'mail', 'sender_refused'],
    ['556 5.1.10 x', 'rcpt', 'null_mx'],
    ['550 5.2.1 x', 'rcpt', 'inactive'],
    ['550 5.2.1 receiving mail at a rate that', 'rcpt', 'rate'],
    ['550 5.2.1 over-used', 'rcpt', 'rate'],
    ['450 4.2.1 x', 'rcpt', 'temporary'],
    ['552 5.2.2 x', 'rcpt', 'mailbox_full'],
    ['452 4.2.2 x', 'rcpt', 'mailbox_full'],
    ['552 5.2.3 x', 'dot', 'too_large'],
    ['552 5.3.4 x', 'mail', 'too_large'],
    ['451 4.3.0 x', 'rcpt', 'system_error'],
    ['550 5.4.1 x', 'rcpt', 'no_answer'],
    ['451 4.4.2 x', 'data', 'connection_lost'],
    ['451 4.4.3 x', 'rcpt', 'dns'],
    ['451 4.4.5 x', 'rcpt', 'rate'],
    ['554 5.4.6 x', 'dot', 'loop'],
    ['554 5.4.7 x', 'dot', 'expired'],
    ['452 4.5.3 x', 'rcpt', 'temporary'],
    ['503 5.5.1 x', 'rcpt', 'protocol'],
    ['554 5.6.0 x', 'dot', 'policy'],
    ['550 5.7.0 x', 'dot', 'policy'],
    ['550 5.7.1 x', 'rcpt', 'recipient_refused'],
    ['550 5.7.1 x', 'dot', 'policy'],
    ['550 5.7.1 x', 'mail', 'policy'],
    ['550 5.7.20 x', 'dot', 'auth_failed'],
    ['550 5.7.26 x', 'dot', 'auth_failed'],
    ['550 5.7.25 x', 'mail', 'no_ptr'],
    ['550 5.7.13 x', 'rcpt', 'inactive'],
    ['550 5.7.509 x', 'dot', 'auth_failed'],
    ['550 5.7.606 x', 'mail', 'ip_block'],
    ['421 4.7.28 x', 'rcpt', 'rate'],
    ['550 5.7.9 x', 'rcpt', 'policy'],
    ['552 no quota left', 'rcpt', 'mailbox_full'],
    ['552 refused', 'dot', 'too_large'],
    ['551 x', 'rcpt', 'moved'],
    ['551 x', 'mail', 'sender_refused'],
    ['550 no', 'rcpt', 'unknown'],
    ['450 no', 'rcpt', 'temporary'],
    ['550 no', 'mail', 'sender_refused'],
    ['450 no', 'mail', 'temporary'],
    ['554 no', 'banner', 'unknown'],
  ]
  for (const [raw, stage, category] of cases) {
    const found = classify(reply(raw), stage, null)
    t.strictSame([found.category, found.rule], [category, null], `${raw} at ${stage}`)
  }
})

t.test("rules are tried in order: a provider's own, general ones, the code table, then weak ones", async (t) => {
  const classify = createClassifier([
    rule({ id: 'weak', match: 'word', category: 'policy', weak: true }),
    rule({ id: 'general', match: 'word here', category: 'spam_content' }),
    rule({ id: 'second', match: 'word here', category: 'virus' }),
    rule({ id: 'own', match: 'WORD HERE', category: 'rate', provider: 'google' }),
    rule({ id: 'five', match: 'classy', category: 'ip_block', class: 5 }),
    rule({ id: 'staged', match: 'staged', category: 'no_ptr', stage: ['connect', 'ehlo'] }),
    rule({ id: 'user', match: 'unknown user', category: 'invalid_recipient' }),
    rule({ id: 'user-later', match: 'unknown user', category: 'spam_content' }),
  ])
  const cases: [string, SmtpStage, string | null, string, string | null][] = [
    ['550 word here', 'rcpt', null, 'spam_content', 'general'],
    ['550 5.1.1 Word Here', 'rcpt', 'yahoo', 'spam_content', 'general'],
    ['550 word here', 'rcpt', 'google', 'rate', 'own'],
    ['550 word', 'rcpt', null, 'policy', 'weak'],
    ['550 5.1.1 word', 'rcpt', null, 'invalid_recipient', null],
    ['550 classy', 'rcpt', null, 'ip_block', 'five'],
    ['450 classy', 'rcpt', null, 'temporary', null],
    ['554 staged', 'banner', null, 'no_ptr', 'staged'],
    ['454 staged', 'starttls', null, 'no_ptr', 'staged'],
    ['554 staged', 'dot', null, 'unknown', null],
    ['550 unknown user', 'rcpt', null, 'invalid_recipient', 'user'],
    ['550 unknown user', 'data', null, 'invalid_recipient', 'user'],
    ['550 unknown user', 'mail', null, 'spam_content', 'user-later'],
  ]
  for (const [raw, stage, provider, category, id] of cases) {
    const found = classify(reply(raw), stage, provider)
    t.strictSame([found.category, found.rule], [category, id], `${raw} at ${stage} from ${String(provider)}`)
  }
  t.throws(() => createClassifier([rule({ id: 'x', match: 'x', category: 'nonsense' })]), /unknown category nonsense/)
})

t.test('only a category that calls the address dead suppresses it, and a rule may want to hear it twice', async (t) => {
  const classify = createClassifier([
    rule({ id: 'sure', match: 'no such user', category: 'invalid_recipient' }),
    rule({ id: 'doubtful', match: 'unavailable', category: 'invalid_recipient', suppress: 'second' }),
    rule({ id: 'ours', match: 'blocked', category: 'ip_block', suppress: 'second' }),
  ])
  const cases: [string, SmtpStage | 'dsn', string][] = [
    ['550 no such user', 'rcpt', 'always'],
    ['550 no such user', 'dsn', 'always'],
    ['550 no such user', 'mail', 'never'],
    ['550 unavailable', 'rcpt', 'second'],
    ['550 blocked', 'rcpt', 'never'],
    ['550 5.1.1 x', 'rcpt', 'always'],
    ['550 5.2.2 x', 'rcpt', 'never'],
    ['550 x', 'rcpt', 'never'],
    // A mailbox status that says nothing, and one that a filter gives after the data.
    ['550 5.2.0 x', 'rcpt', 'never'],
    ['550 5.2.1 x', 'rcpt', 'always'],
    ['550 5.2.1 x', 'dot', 'never'],
  ]
  for (const [raw, stage, suppress] of cases) {
    t.equal(classify(reply(raw), stage, null).suppress, suppress, `${raw} at ${stage}`)
  }
})

t.test('no reply before RCPT makes a hard bounce, whatever it says', async (t) => {
  const rules = BOUNCE_CATEGORY_NAMES.map((category) => rule({ id: category, match: category, category }))
  const classify = createClassifier(rules)
  for (const category of BOUNCE_CATEGORY_NAMES) {
    for (const stage of STAGES) {
      const found = classify(reply(`550 5.1.1 ${category}`), stage, null).category
      const isHard = BOUNCE_CATEGORIES[found].type === 'hard'
      t.ok(!isHard || ['rcpt', 'data', 'dot'].includes(stage), `${category} at ${stage}`)
    }
  }
})

t.test('a bounce has a type, three numbers and a description', async (t) => {
  t.strictSame(bounceFor('invalid_recipient', reply('550 5.1.1 no such user'), ''), {
    type: 'hard',
    category: 'invalid_recipient',
    code: '5.1.1',
    description: '550 5.1.1 no such user',
  })
  t.strictSame(
    bounceFor('too_large', reply('552 no'), ''),
    { type: 'soft', category: 'too_large', code: '5.3.4', description: '552 no' },
    "a reply without enhanced code gets the category's",
  )
  t.strictSame(bounceFor('expired', null, 'not delivered within 72 h'), {
    type: 'soft',
    category: 'expired',
    code: '4.4.7',
    description: 'not delivered within 72 h',
  })
  const long = { code: 550, enhancedCode: null, text: '😀'.repeat(2_000) }
  t.equal([...bounceFor('unknown', long, '').description].length, 1_000, 'at most 1,000 characters')
  for (const category of BOUNCE_CATEGORY_NAMES) {
    const { defaultCode } = BOUNCE_CATEGORIES[category]
    t.match(defaultCode, /^[45]\.\d{1,3}\.\d{1,3}$/, `${category} has a default code`)
  }
  const hard = BOUNCE_CATEGORY_NAMES.filter((category) => BOUNCE_CATEGORIES[category].type === 'hard')
  t.strictSame(hard, ['invalid_recipient', 'bad_domain', 'null_mx', 'inactive', 'moved', 'bad_address_syntax'])
  t.ok(
    hard.every((category) => BOUNCE_CATEGORIES[category].onPermanent === 'end'),
    'a dead address is not tried again',
  )
})

t.test('the shipped rules know these answers', async (t) => {
  const classify = shippedClassifier()
  const cases: [raw: string, stage: ReportStage, category: string][] = [
    ['550 From: domain is invalid', 'mail', 'sender_refused'],
    ['550 daily relay quota exceeded', 'rcpt', 'rate'],
    ['504 parameter not implemented', 'mail', 'protocol'],
    ['451 could not lock mailbox', 'dot', 'temporary'],
    ['550 service currently unavailable', 'rcpt', 'system_error'],
    ['521 5.3.2 System not accepting network messages', 'rcpt', 'null_mx'],
    ['554 could not deliver mail for the last 432000 seconds', 'dsn', 'expired'],
    ['554 message not delivered within 2 days', 'dsn', 'expired'],
    ['550 ユーザー foo は Domino ディレクトリに記載がありません', 'rcpt', 'invalid_recipient'],
    ['550 5.7.6 no', 'dot', 'policy'],
    ['501 my name was rejected', 'dsn', 'no_ptr'],
    ['550 5.7.1 Client hostname not found', 'rcpt', 'no_ptr'],
    ['550 5.7.1 Client host [203.0.113.9] does not resolve', 'rcpt', 'no_ptr'],
    // RFC 7505 §4.2: X.7.27 is about the sender, X.1.10 about the recipient.
    ['550 5.7.27 Sender address has null MX', 'rcpt', 'sender_refused'],
    ['550 5.7.27 This domain has a null MX', 'rcpt', 'sender_refused'],
    ['556 5.1.10 Recipient address has null MX', 'rcpt', 'null_mx'],
  ]
  for (const [raw, stage, category] of cases) t.equal(classify(reply(raw), stage, null).category, category, raw)
  const late = '550 ada@example.org... No such user'
  t.match(classify(reply(late), 'dot', null), { category: 'recipient_refused', inReports: 'invalid_recipient' })
})

t.test('a limit of unknown recipients is told for living addresses too, and suppresses nobody', async (t) => {
  const classify = shippedClassifier()
  const limits = [
    '550 Too many invalid recipients',
    '550 5.7.1 Too many invalid recipients',
    '554 Too many unknown users',
    '554 5.7.1 Too many invalid addresses, directory harvest attack',
    '550 5.1.1 Unknown user; too many bad recipients',
    '550 Maximum number of non-existent recipients exceeded',
    '550 Invalid recipient limit exceeded',
    '421 Too many unknown recipients',
  ]
  for (const raw of limits) {
    for (const stage of ['rcpt', 'data', 'dot', 'dsn'] as const) {
      const expected = { category: 'rate', suppress: 'never', inReports: null }
      t.match(classify(reply(raw), stage, null), expected, `${raw} at ${stage}`)
    }
  }
  for (const raw of ['550 5.1.1 <harvest@example.com>: User unknown', '550 No such user a@harvest.example']) {
    t.match(classify(reply(raw), 'rcpt', null), { category: 'invalid_recipient', suppress: 'always' }, raw)
  }
})
