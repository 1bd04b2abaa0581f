/**
 * Tokens of opens, clicks and unsubscribes: what they name, and that nothing else is one.
 */
import { createSecretKey, randomFillSync } from 'node:crypto'
import t from 'tap'
import { RFC_4648 } from '../../src/base/base32.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import {
  clickToken,
  openToken,
  readClickToken,
  readOpenToken,
  readUnsubscribeToken,
  unsubscribeToken,
} from '../../src/mail/message-token.ts'

const KEY = createSecretKey(Buffer.alloc(32, 7))
const MESSAGE_ID = 'msg_01kapg6t3vq8x2m5r7w9y4c6de'
const TOKEN_BYTES = 35

const OPEN = openToken(MESSAGE_ID, KEY)
const CLICK = clickToken(MESSAGE_ID, 999, KEY)
const UNSUBSCRIBE = unsubscribeToken(MESSAGE_ID, 0, KEY)

/** What each kind of reading makes of a text. */
const readAll = (text: string, key = KEY): unknown[] =>
  [readOpenToken, readClickToken, readUnsubscribeToken]
    .map((read) => read(text, key))
    .filter((found) => found !== undefined)

t.test('a token names its message and number, and is the same every time', async (t) => {
  for (let count = 0; count < 100; count++) {
    const messageId = newIdentifier('msg', 1_795_219_200_000 + count)
    const tokens = [
      openToken(messageId, KEY),
      clickToken(messageId, count, KEY),
      unsubscribeToken(messageId, count, KEY),
    ] as const
    for (const token of tokens) t.match(token, /^[a-z2-7]{56}$/)
    const facts = { messageId, linkNumber: count, listNumber: count }
    t.equal(readOpenToken(tokens[0], KEY), messageId)
    t.has(facts, readClickToken(tokens[1], KEY))
    t.has(facts, readUnsubscribeToken(tokens[2].toUpperCase(), KEY), 'servers may change the case')
  }
  t.throws(() => openToken('evt_01kapg6t3vq8x2m5r7w9y4c6de', KEY), /not a message id/)
})

t.test('every other bit, purpose, key or length is none', async (t) => {
  for (const token of [OPEN, CLICK, UNSUBSCRIBE]) {
    const bytes = RFC_4648.decode(token) ?? Buffer.alloc(0)
    t.equal(bytes.length, TOKEN_BYTES)
    t.equal(readAll(token).length, 1, 'of one purpose')
    for (let bit = 0; bit < 8 * TOKEN_BYTES; bit++) {
      const flipped = Buffer.from(bytes)
      flipped.writeUInt8(flipped.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3)
      if (readAll(RFC_4648.encode(flipped)).length > 0) t.fail(`bit ${bit} of ${token}`)
    }
    t.same(readAll(token, createSecretKey(Buffer.alloc(32, 8))), [], 'another key')
    const malformed = [
      '',
      token.slice(1),
      `${token}a`,
      ` ${token.slice(1)}`,
      `${token.slice(0, 55)}=`,
      `${token.slice(0, 55)}1`,
      `${token.slice(0, 55)}\u0131`,
      'a'.repeat(1_000_000),
    ]
    for (const text of malformed) t.same(readAll(text), [], JSON.stringify(text.slice(0, 60)))
  }
})

t.test('no token comes about by chance', async (t) => {
  const tries = process.env['TEST_SCALE'] === 'full' ? 1_000_000 : 10_000
  const bytes = Buffer.alloc(TOKEN_BYTES)
  let found = 0
  for (let count = 0; count < tries; count++) {
    randomFillSync(bytes)
    // Half of them have the right head and message, and only the rest by chance.
    if (count % 2 === 0) (RFC_4648.decode(CLICK) ?? bytes).copy(bytes, 0, 0, 19)
    found += readAll(RFC_4648.encode(bytes)).length
  }
  t.equal(found, 0, `${tries} tries`)
})
