/**
 * A content on its way to the store thread: every byte of it, in memory of its own.
 */
import t from 'tap'
import { packContent } from '../../src/store/records/packed-content.ts'
import { sampleContent } from './store-samples.ts'

t.test('all bytes of a content stand in one block, in their order', (t) => {
  const attachment = { name: 'a.bin', contentType: 'application/octet-stream', contentId: null }
  const packed = packContent({
    ...sampleContent,
    html: '<p>Grüße 😀</p>',
    text: 'Gr\u00fc\u00dfe',
    attachments: [
      { ...attachment, bytes: Buffer.from([1, 2, 3]) },
      { ...attachment, bytes: Buffer.alloc(0) },
    ],
    raw: Buffer.from('raw'),
  })
  t.match(packed, { htmlBytes: 19, textBytes: 7, rawBytes: 3 })
  t.strictSame(JSON.parse(packed.attachments ?? ''), [
    { ...attachment, sizeBytes: 3 },
    { ...attachment, sizeBytes: 0 },
  ])
  t.equal(
    Buffer.from(packed.bytes).toString('latin1'),
    `${Buffer.from('<p>Grüße 😀</p>Grüße').toString('latin1')}\x01\x02\x03raw`,
  )
  t.end()
})

t.test('texts of any length, and none', (t) => {
  for (const html of ['', 'x'.repeat(170_000), 'x'.repeat(600_000), '€'.repeat(600_000)]) {
    for (const text of [null, '', 'ü'.repeat(100_000)]) {
      const packed = packContent({ ...sampleContent, html, text })
      t.ok(Buffer.from(packed.bytes).equals(Buffer.from(`${html}${text ?? ''}`)), `${html.length}, ${text?.length}`)
      const textBytes = text && Buffer.byteLength(text)
      t.match(packed, { htmlBytes: Buffer.byteLength(html), textBytes, rawBytes: null })
    }
  }
  t.end()
})

t.test('the memory of a content can be moved, and is nobody else’s', (t) => {
  const small = packContent({ ...sampleContent, html: 'small', text: null })
  const other = packContent({ ...sampleContent, html: 'other', text: null })
  t.equal(small.bytes.buffer.byteLength, 5)
  structuredClone(small, { transfer: [small.bytes.buffer] })
  t.equal(small.bytes.length, 0)
  t.equal(Buffer.from(other.bytes).toString(), 'other')
  t.end()
})
