/**
 * Tokens in mail, organizational domains, and the bodies of events.
 */
import { createSecretKey } from 'node:crypto'
import t from 'tap'
import { newIdentifier } from '../../src/base/identifier.ts'
import {
  bouncedData,
  deliveredData,
  eventBody,
  FURTHER_EVENT_KINDS,
  GIVEN_EVENT_KINDS,
  isSubscribed,
  TIMELINE_KINDS,
} from '../../src/mail/event.ts'
import { isPublicSuffix, organizationalDomain } from '../../src/mail/organizational-domain.ts'
import {
  complaintToken,
  namedMessageId,
  readComplaintToken,
  readReturnPathToken,
  returnPathAddress,
  returnPathToken,
  unsubscribeToken,
} from '../../src/mail/message-token.ts'
import { withoutTokens } from '../../src/mail/reply/smtp-reply.ts'

const KEY = createSecretKey(Buffer.alloc(32, 7))
const MESSAGE_ID = 'msg_01kapg6t3vq8x2m5r7w9y4c6de'

t.test('a token names its message, fits a local part, and is the same every time', async (t) => {
  for (let count = 0; count < 50; count++) {
    const id = newIdentifier('msg', 1_795_219_200_000 + count)
    const token = returnPathToken(id, KEY)
    t.match(token, /^[a-z2-7]{48}$/)
    t.equal(returnPathToken(id, KEY), token)
    t.equal(readReturnPathToken(token, KEY), id)
    t.equal(readReturnPathToken(token.toUpperCase(), KEY), id, 'servers may change the case')
    t.equal(readComplaintToken(complaintToken(id, KEY), KEY), id)
  }
  t.match(returnPathAddress(MESSAGE_ID, 'bounces.acme.com', KEY), /^b-[a-z2-7]{48}@bounces\.acme\.com$/)
  t.throws(() => returnPathToken('evt_01kapg6t3vq8x2m5r7w9y4c6de', KEY), /not a message id/)
})

t.test('what stands in the header of a mail names its message, without the key', (t) => {
  const token = complaintToken(MESSAGE_ID, KEY)
  const named = [`<${token}@acme.com>`, `${token.toUpperCase()}@acme.com`, token, `f-${token}@rp.acme.com`]
  for (const text of [...named, returnPathAddress(MESSAGE_ID, 'rp.acme.com', KEY)]) {
    t.equal(namedMessageId(text), MESSAGE_ID, text)
  }
  const others = [
    '',
    MESSAGE_ID,
    `<${token.slice(1)}@acme.com>`,
    `<x${token}@acme.com>`,
    `b${token.slice(1)}`,
    `${token}@a@b`,
  ]
  for (const text of others) t.equal(namedMessageId(text), undefined, text)
  t.end()
})

t.test('a changed, foreign or malformed token names nothing', async (t) => {
  const token = returnPathToken(MESSAGE_ID, KEY)
  for (let index = 0; index < token.length; index++) {
    for (const bit of [1, 2, 4, 8, 16]) {
      const value = 'abcdefghijklmnopqrstuvwxyz234567'.indexOf(token.charAt(index)) ^ bit
      const changed = token.slice(0, index) + 'abcdefghijklmnopqrstuvwxyz234567'.charAt(value) + token.slice(index + 1)
      if (readReturnPathToken(changed, KEY) !== undefined) t.fail(`${changed} is taken`)
    }
  }
  t.equal(readReturnPathToken(token, createSecretKey(Buffer.alloc(32, 8))), undefined, 'another key')
  t.equal(readComplaintToken(token, KEY), undefined, 'another purpose')
  const malformed = ['', 'a', token.slice(1), `${token}a`, ` ${token.slice(1)}`, `${token.slice(0, 47)}=`, `b-${token}`]
  for (const text of malformed) {
    t.equal(readReturnPathToken(text, KEY), undefined, JSON.stringify(text))
  }
})

t.test('what others read of a dialogue has no token in it', async (t) => {
  const [path, token] = [returnPathAddress(MESSAGE_ID, 'b.acme.com', KEY), complaintToken(MESSAGE_ID, KEY)]
  const link = unsubscribeToken(MESSAGE_ID, 1, KEY)
  const cases: [string, string][] = [
    [`> MAIL FROM:<${path}> RET=HDRS ENVID=${path.split('@')[0]}`, '> MAIL FROM:<b-…@b.acme.com> RET=HDRS ENVID=b-…'],
    [`250 2.6.0 <${token}@acme.com> [InternalId=5] Queued`, '250 2.6.0 <…@acme.com> [InternalId=5] Queued'],
    [`553 <${path.toUpperCase()}> u-${link}@b.acme.com.`, '553 <B-…@B.ACME.COM> u-…@b.acme.com.'],
    [`250 ok ${token}x ${'a'.repeat(48)}`, `250 ok ${token}x ${'a'.repeat(48)}`],
  ]
  for (const [text, shown] of cases) t.equal(withoutTokens(text), shown)
})

t.test('the organizational domain is what somebody registered', async (t) => {
  const cases: [string, string][] = [
    ['mx1.mail.example.co.uk', 'example.co.uk'],
    ['example.com', 'example.com'],
    ['a.github.io', 'a.github.io'],
    ['x.a.github.io', 'a.github.io'],
    ['simulator.sternpost.test', 'sternpost.test'],
    ['localhost', 'localhost'],
    ['co.uk', 'co.uk'],
    ['mail.xn--bcher-kva.de', 'xn--bcher-kva.de'],
  ]
  for (const [name, expected] of cases) t.equal(organizationalDomain(name), expected, name)
  t.equal(isPublicSuffix('co.uk'), true)
  t.equal(isPublicSuffix('github.io'), true)
  t.equal(isPublicSuffix('com'), true)
  t.equal(isPublicSuffix('example.com'), false)
})

t.test('event bodies are exactly those of the interface', async (t) => {
  const delivered = deliveredData('msg_01kapg6t3vq8x2m5r7w9y4c6de', 'ada@gmail.com', 'gmail')
  t.equal(
    eventBody({ id: 'evt_x', kind: 'email.delivered', at: 1_795_219_207_999, data: delivered }),
    '{"event":"email.delivered","timestamp":1795219207,"data":' +
      '{"message_id":"msg_01kapg6t3vq8x2m5r7w9y4c6de","recipient":"ada@gmail.com","isp":"gmail"}}',
  )
  const bounced = bouncedData('msg_01kapg6t3vq8x2m5r7w9y4c6dn', 'x@acme.org', {
    type: 'hard',
    category: 'invalid_recipient',
    code: '5.1.1',
    description: '550 5.1.1 The email account that you tried to reach does not exist',
  })
  t.equal(
    eventBody({ id: 'evt_x', kind: 'email.bounced', at: 1_795_219_207_000, data: bounced }),
    '{"event":"email.bounced","timestamp":1795219207,"data":{"message_id":"msg_01kapg6t3vq8x2m5r7w9y4c6dn",' +
      '"recipient":"x@acme.org","bounce_type":"hard","bounce_code":"5.1.1",' +
      '"bounce_description":"550 5.1.1 The email account that you tried to reach does not exist"}}',
  )
})

t.test("an endpoint gets the kinds it names, and the timeline's own kinds never", async (t) => {
  for (const kind of [...GIVEN_EVENT_KINDS, ...FURTHER_EVENT_KINDS]) {
    t.equal(isSubscribed([kind], kind), true, kind)
    t.equal(isSubscribed(['*'], kind), true, kind)
    t.equal(isSubscribed([], kind), false, kind)
    t.equal(
      isSubscribed([...GIVEN_EVENT_KINDS], kind),
      GIVEN_EVENT_KINDS.some((given) => given === kind),
      kind,
    )
  }
  for (const kind of TIMELINE_KINDS) t.equal(isSubscribed(['*', kind], kind), false, kind)
})
