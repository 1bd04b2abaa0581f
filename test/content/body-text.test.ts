/**
 * Texts of a message written in pieces: byte for byte as when they are encoded as a whole; and what the fast ways of
 * signing and sending take for granted holds for every composed message.
 */
import fc from 'fast-check'
import t from 'tap'
import {
  fixedLines,
  hasText,
  textOf,
  toUtf8,
  writeBase64,
  writeReadable,
  type BodyText,
} from '../../src/content/mime/body-text.ts'
import { relaxedBody, withoutRuns } from '../../src/content/mime/dkim.ts'
import {
  mostQuotedPrintableBytes,
  mostEscapedBytes,
  quotedPrintable,
  writeQuotedPrintable,
} from '../../src/content/mime/quoted-printable.ts'
import { prepareContent } from '../../src/content/prepare-content.ts'
import { composeUnsigned } from '../../src/content/render-message.ts'
import { createMessageBody } from '../../src/delivery/session/message-body.ts'
import { attachment, input } from './render-input.ts'

const RUNS = { numRuns: process.env['TEST_SCALE'] === 'full' ? 5_000 : 600 }
const UNIT = fc.constantFrom(
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
  '<p>',
  '\r',
  '€',
)
const TEXT = fc.string({ unit: UNIT, maxLength: 40 })
/** In pieces; those that are encoded ahead begin and end where a line does. */
const LINES = fc.array(fc.tuple(TEXT, TEXT, fc.boolean()), { maxLength: 6 })
const PIECES = fc
  .tuple(LINES, TEXT)
  .map(([lines, last]): BodyText => [
    ...lines.flatMap(([start, text, isFixed]) => (isFixed ? [`${start}\n`, fixedLines(`${text}\n`)] : [start, text])),
    last,
  ])
/** Some texts fit, others need memory of their own. */
const memory = Buffer.alloc(300)

t.test('a text in pieces becomes what it becomes as a whole', async (t) => {
  const seen = { readable: 0, base64: 0, fixed: 0 }
  fc.assert(
    fc.property(PIECES, (body) => {
      const text = Buffer.from(textOf(body))
      const alone = Buffer.alloc(5 + mostQuotedPrintableBytes(text.length))
      const target = Buffer.alloc(alone.length)
      const mostEscaped = mostEscapedBytes(text.length)
      const [runs, runsAlone]: [number[], number[]] = [[], []]
      const whole = writeQuotedPrintable(text, alone, 5, { mostEscaped, runs: runsAlone })
      const utf8 = toUtf8(body, memory)
      const end = writeReadable(utf8, target, 5, { mostEscaped, runs })
      if (utf8.bytes !== text.length || hasText(body) !== text.length > 0 || whole?.end !== end) return false
      seen.fixed += body.filter((piece) => typeof piece !== 'string').length
      seen[end === undefined ? 'base64' : 'readable']++
      if (end === undefined) return writeBase64(body, target, 5) === 5 + writeBase64([text.toString()], alone, 0)
      return target.subarray(5, end).equals(quotedPrintable(text)) && runs.join() === runsAlone.join()
    }),
    RUNS,
  )
  t.ok(seen.readable > 50 && seen.base64 > 50 && seen.fixed > 50, JSON.stringify(seen))
})

t.test('lines are encoded once only where that takes no more memory than a few times their text', async (t) => {
  t.match(fixedLines('a text  with some\twhite space, as it is\n'), { escaped: 0, runs: [6, 8, 17, 18] })
  for (const text of ['\u00e4\u00f6\u00fc\n', 'a\tb\tc\td\n', `${'='.repeat(21)}${'x'.repeat(99)}\n`]) {
    t.equal(fixedLines(text), text, JSON.stringify(text))
  }
})

t.test('the white space of a long message is not noted: the list could be longer than the message', async (t) => {
  for (const [count, isNoted] of [
    [1, true],
    [40_000, false],
  ] as const) {
    const [html, text] = [null, 'a  b\tc\n'.repeat(count)]
    const { unsigned } = await composeUnsigned(input({ content: { html, text, hasVariables: false } }))
    t.equal(unsigned.runs?.length ?? null, isNoted ? 4 * count : null)
  }
})

t.test('base64 has CRLF for any line end, in lines of 76 characters', async (t) => {
  const target = Buffer.alloc(1_000)
  const fixed = fixedLines(`${'o'.repeat(90)}\u00f6\n`)
  t.type(fixed, 'object')
  const end = writeBase64(['ä\n\r\r\n', fixed, 'ü'], target, 0)
  const lines = target.toString('latin1', 0, end).split('\r\n')
  t.ok(lines.every((line, index) => line.length === 76 || index === lines.length - 1))
  t.equal(Buffer.from(lines.join(''), 'base64').toString(), `ä\r\n\r\n\r\n${'o'.repeat(90)}ö\r\nü`)
})

t.test('a message of a content that many share is the same as if it were the only one', async (t) => {
  const bits = fc.constantFrom(
    '{{a}}',
    '{{{b}}}',
    '<a href="https://x.test/{{a}}">',
    '<a href=https://x.test/>',
    '</a>',
    '</body>',
    '\n',
    '\r\n',
    '\n'.repeat(250),
    '<p style="margin:0">  text</p>\n'.repeat(9),
    'ü',
    'ü'.repeat(99),
    '\t',
    ' ',
    '.',
    '\r',
  )
  const texts = fc.option(fc.array(bits, { maxLength: 12 }).map((chosen) => chosen.join('')))
  const value = fc.constantFrom('', 'x', 'ü', '\n', ' ', '.a\n.', '&')
  let fixed = 0
  await fc.assert(
    fc.asyncProperty(
      fc.record({ html: texts, text: texts }),
      value,
      value,
      fc.boolean(),
      fc.boolean(),
      async (bodies, a, b, opens, clicks) => {
        const hasVariables = a !== b
        const alone = input({
          content: { ...bodies, subject: 'x', hasVariables, tracking: { opens, clicks } },
          facts: { variables: { a, b } },
        })
        const content = prepareContent(alone.content.stored, true)
        const shared = await composeUnsigned({ ...alone, content })
        fixed += (shared.bodies?.html ?? []).filter((piece) => typeof piece !== 'string').length
        return shared.bytes.equals((await composeUnsigned(alone)).bytes)
      },
    ),
    RUNS,
  )
  t.ok(fixed > 100, `${fixed} pieces were encoded ahead`)
})

t.test('a composed message is canonical but for the white space that is told, and fit for the wire', async (t) => {
  const changes = fc.record({ html: fc.option(TEXT), text: fc.option(TEXT), isAttached: fc.boolean() })
  await fc.assert(
    fc.asyncProperty(changes, async ({ html, text, isAttached }) => {
      const file = attachment({ name: 'a  long\tname with ü and everything, so that it is folded.txt' })
      const { unsigned, bytes } = await composeUnsigned(
        input({ content: { html, text, attachments: isAttached ? [file] : [], hasVariables: false } }),
        100,
      )
      const { buffer, start, bodyStart, runs } = unsigned
      const { piece } = createMessageBody(bytes).next()
      return (
        bytes.indexOf('\r\n\r\n') + 4 === bodyStart - start &&
        piece.equals(bytes) &&
        (runs === null || withoutRuns(buffer, bodyStart, runs).equals(relaxedBody(buffer.subarray(bodyStart))))
      )
    }),
    RUNS,
  )
  const { unsigned } = await composeUnsigned(input({ content: { html: '<p>a  b</p>\n' } }))
  t.equal(unsigned.runs?.length, 2, 'what is told of an ordinary message')
})

t.test('fixed lines keep no memory but their own', async (t) => {
  // A pool of 64 KiB behind each of them made the content cache many times as large as its bound.
  for (const lines of [1, 20, 2_000]) {
    const fixed = fixedLines('On its way\n'.repeat(lines))
    if (typeof fixed === 'string') t.fail('they are encoded')
    else t.equal(fixed.encoded.buffer.byteLength, fixed.encoded.length)
  }
})
