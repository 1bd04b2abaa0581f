/**
 * A content on its way to the store thread: every byte of it, in memory of its own.
 */
import t from 'tap'
import { memoryOfContent, packContent, type PackedContent } from '../../src/store/records/packed-content.ts'
import { sampleContent } from './store-samples.ts'

const bytesOf = ({ blocks }: PackedContent): Buffer => Buffer.concat(blocks)

t.test('all bytes of a content stand one after the other', (t) => {
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
    bytesOf(packed).toString('latin1'),
    `${Buffer.from('<p>Grüße 😀</p>Grüße').toString('latin1')}\x01\x02\x03raw`,
  )
  t.end()
})

t.test('texts of any length, and none', (t) => {
  for (const html of ['', 'x'.repeat(170_000), 'x'.repeat(600_000), '€'.repeat(600_000)]) {
    for (const text of [null, '', 'ü'.repeat(100_000)]) {
      const packed = packContent({ ...sampleContent, html, text })
      t.ok(bytesOf(packed).equals(Buffer.from(`${html}${text ?? ''}`)), `${html.length}, ${text?.length}`)
      const textBytes = text && Buffer.byteLength(text)
      t.match(packed, { htmlBytes: Buffer.byteLength(html), textBytes, rawBytes: null })
    }
  }
  t.end()
})

t.test('the memory of a content can be moved, and is nobody else’s', (t) => {
  const small = packContent({ ...sampleContent, html: 'small', text: null })
  const other = packContent({ ...sampleContent, html: 'other', text: null })
  const [memory] = memoryOfContent(small)
  t.equal(memory?.byteLength, 5)
  structuredClone(small, { transfer: memoryOfContent(small) })
  t.equal(small.blocks[0]?.length, 0)
  t.equal(bytesOf(other).toString(), 'other')
  t.end()
})

t.test('long attachments are given away and not copied', (t) => {
  const memory = Buffer.allocUnsafeSlow(300_000).fill('x')
  const [first, second] = [memory.subarray(0, 100_000), memory.subarray(100_000)]
  const attachment = { name: 'a.bin', contentType: 'application/octet-stream', contentId: null }
  const attachments = [first, Buffer.from('short'), second].map((bytes) => ({ ...attachment, bytes }))
  const packed = packContent({ ...sampleContent, html: 'y'.repeat(100_000), text: null, attachments })
  t.ok(memoryOfContent(packed).includes(memory.buffer))
  const moved = structuredClone(packed, { transfer: memoryOfContent(packed) })
  t.equal(memory.buffer.byteLength, 0)
  t.equal(bytesOf(moved).toString(), `${'y'.repeat(100_000)}${'x'.repeat(100_000)}short${'x'.repeat(200_000)}`)
  t.end()
})
