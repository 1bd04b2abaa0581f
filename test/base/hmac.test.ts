/** HMAC-SHA-256 against that of Node, and the published test cases. */
import { createHmac, createSecretKey } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { hmacSha256 } from '../../src/base/hmac.ts'

t.test('the cases of RFC 4231 §4.2, §4.3 and §4.7', async (t) => {
  const cases: [Buffer, string, string][] = [
    [Buffer.alloc(20, 0x0b), 'Hi There', 'b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7'],
    [
      Buffer.from('Jefe'),
      'what do ya want for nothing?',
      '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843',
    ],
    [
      Buffer.alloc(131, 0xaa),
      'Test Using Larger Than Block-Size Key - Hash Key First',
      '60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54',
    ],
  ]
  for (const [key, text, mac] of cases) {
    t.equal(hmacSha256(createSecretKey(key), text, Buffer.alloc(0)), mac, 'all of it as the purpose')
    t.equal(hmacSha256(createSecretKey(key), '', Buffer.from(text)), mac, 'all of it as bytes')
  }
})

t.test('any key, purpose and bytes: as Node has it, also when one key is used for many', async (t) => {
  const bytes = (most: number) => fc.uint8Array({ minLength: 1, maxLength: most })
  const shared = createSecretKey(Buffer.alloc(32, 9))
  fc.assert(
    fc.property(bytes(200), fc.constantFrom('', 'bounce', 'unsubscribe'), bytes(50), (key, purpose, signed) => {
      return [createSecretKey(key), shared].every(
        (each) =>
          hmacSha256(each, purpose, signed) === createHmac('sha256', each).update(purpose).update(signed).digest('hex'),
      )
    }),
  )
  t.pass('all alike')
})

t.test('more than it has room for is an error, never a MAC over less', async (t) => {
  const key = createSecretKey(Buffer.alloc(32, 1))
  t.equal(hmacSha256(key, 'x', Buffer.alloc(63)).length, 64)
  t.throws(() => hmacSha256(key, 'x', Buffer.alloc(64)), RangeError)
  t.throws(() => hmacSha256(key, 'x'.repeat(65), Buffer.alloc(0)), RangeError)
})
