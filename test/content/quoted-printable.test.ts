/** Quoted-printable: what another decoder makes of it, and what may stand on a line. */
import fc from 'fast-check'
import PostalMime from 'postal-mime'
import t from 'tap'
import { relaxedBody, withoutRuns } from '../../src/content/mime/dkim.ts'
import { mostEscapedBytes, quotedPrintable, writeQuotedPrintable } from '../../src/content/mime/quoted-printable.ts'

const HEADER = 'Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n'

const TABLE: [what: string, text: string, encoded: string][] = [
  ['nothing', '', ''],
  ['ASCII', 'Hello, world', 'Hello, world'],
  ['an equals sign', 'a=b', 'a=3Db'],
  ['beyond ASCII', 'ä€', '=C3=A4=E2=82=AC'],
  ['any line end', 'a\nb\rc\r\nd', 'a\r\nb\r\nc\r\nd'],
  ['white space at line ends', 'a \nb\t\r\n ', 'a=20\r\nb=09\r\n=20'],
  ['white space inside', 'a  b\tc', 'a  b\tc'],
  ['controls', '\0\x07\x7f', '=00=07=7F'],
  ['75 characters', 'x'.repeat(75), 'x'.repeat(75)],
  ['76 characters', 'x'.repeat(76), `${'x'.repeat(75)}=\r\nx`],
  ['dots at line starts', '.a.\n.\n..b', '=2Ea.\r\n=2E\r\n=2E.b'],
  ['a dot behind a soft break', `${'x'.repeat(75)}.y`, `${'x'.repeat(75)}=\r\n=2Ey`],
  ['a dot in front of one', `${'x'.repeat(74)}.y`, `${'x'.repeat(74)}.=\r\ny`],
  ['no escape is cut', `${'x'.repeat(74)}=`, `${'x'.repeat(74)}=\r\n=3D`],
]

t.test('texts and their encoded forms', async (t) => {
  for (const [what, text, encoded] of TABLE) {
    t.equal(quotedPrintable(Buffer.from(text)).toString('latin1'), encoded, what)
  }
})

t.test('another decoder reads the same text, and lines are short and of printable ASCII', async (t) => {
  const text = fc.string({ unit: 'binary', maxLength: 400 })
  await fc.assert(
    fc.asyncProperty(text, async (given) => {
      const written = given.toWellFormed()
      const encoded = quotedPrintable(Buffer.from(written)).toString('latin1')
      const mail = await PostalMime.parse(HEADER + encoded)
      const isSame = (mail.text ?? '').trimEnd() === written.replace(/\r\n|\r|\n/g, '\n').trimEnd()
      return isSame && encoded.split('\r\n').every((line) => line.length <= 76 && /^(?!\.)[\t -~]*$/.test(line))
    }),
  )
  t.pass('any text')
})

t.test('base64 is preferred where more than a sixth of the bytes need an escape', async (t) => {
  const write = (text: Buffer) =>
    writeQuotedPrintable(text, Buffer.alloc(300), 0, { mostEscaped: mostEscapedBytes(text.length), runs: null })
  const few = Buffer.from(`${'x'.repeat(50)}${'='.repeat(10)}`)
  t.same(write(few), { end: quotedPrintable(few).length, escaped: 10 })
  t.equal(write(Buffer.from(`${'x'.repeat(50)}${'='.repeat(11)}`)), undefined)
})

t.test('the white space that is told leads to the canonical form for DKIM', async (t) => {
  const unit = fc.constantFrom(
    'a',
    ' ',
    '\t',
    '.',
    '=',
    '\n',
    '\r\n',
    'ä',
    '\0',
    'word ',
    'x'.repeat(37),
    'x'.repeat(72),
    '\r',
    '\x7f',
  )
  const ends = fc.constantFrom('', '\r\n', '\r\n--end--\r\n')
  let count = 0
  fc.assert(
    fc.property(fc.string({ unit, maxLength: 30 }), ends, (text, end) => {
      const source = Buffer.from(text)
      const target = Buffer.alloc(8_000)
      const runs: number[] = []
      const written = writeQuotedPrintable(source, target, 7, { mostEscaped: source.length, runs })
      const bytes = Buffer.concat([target.subarray(0, written?.end ?? 0), Buffer.from(end)])
      count += runs.length
      return withoutRuns(bytes, 7, runs).equals(relaxedBody(bytes.subarray(7)))
    }),
    { numRuns: 3_000 },
  )
  t.ok(count > 1_000, `${count} ends of white space`)
})

t.test('a long text is encoded as its parts are, and results do not share memory', async (t) => {
  const line = `${'ä'.repeat(20)} ${'y'.repeat(80)}\r\n`
  const once = quotedPrintable(Buffer.from(line))
  const many = quotedPrintable(Buffer.from(line.repeat(2_000)))
  t.equal(many.toString('latin1'), once.toString('latin1').repeat(2_000))
  t.equal(once.toString('latin1'), quotedPrintable(Buffer.from(line)).toString('latin1'))
})
