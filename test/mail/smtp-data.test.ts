/**
 * DATA over the wire: dots, the end, and chunks cut anywhere, against the rule written down for the whole text.
 */
import t from 'tap'
import { createUnstuffing } from '../../src/mail/smtp-data.ts'
import { randomSource } from '../support/random-source.ts'

const PIECES = ['.', '\r', '\n', 'a', '\r\n', '\r\n.', '\r\n.\r\n', '..', '\r\n..\r\n']
const STORIES = 20_000

t.test('chunks cut anywhere give what the whole gives', async (t) => {
  const random = randomSource(11)
  for (let story = 0; story < STORIES; story++) {
    const text = `${Array.from({ length: 1 + random.integer(9) }, () => random.oneOf(PIECES)).join('')}a\r\n.\r\nQUIT`
    const expected = wholeText(text)
    const chunks = story % 2 === 0 ? [text] : cutInto(text, () => 1 + random.integer(4))
    const seen = inChunks(chunks)
    if (JSON.stringify(seen) !== JSON.stringify(expected)) t.same(seen, expected, JSON.stringify(chunks))
  }
})

t.test('a chunk without dots at the start of lines is handed on as it is', async (t) => {
  const chunk = Buffer.from('a.b\r\nc..\r\n')
  t.equal(createUnstuffing().add(chunk).content, chunk)
})

/** RFC 5321 §4.5.2 for the whole of it. */
function wholeText(text: string): { content: string; rest: string } {
  const end = `\r\n${text}`.indexOf('\r\n.\r\n')
  const content = text.slice(0, end).replace(/(^|\n)\.\./g, '$1.')
  return { content, rest: text.slice(end + '.\r\n'.length) }
}

function cutInto(text: string, size: () => number): string[] {
  const chunks: string[] = []
  for (let at = 0; at < text.length; at += chunks.at(-1)?.length ?? 0) chunks.push(text.slice(at, at + size()))
  return chunks
}

function inChunks(chunks: string[]): { content: string; rest: string | null } {
  const unstuffing = createUnstuffing()
  let content = ''
  let rest: string | null = null
  for (const chunk of chunks) {
    if (rest !== null) rest += chunk
    else {
      const read = unstuffing.add(Buffer.from(chunk))
      content += read.content.toString()
      rest = read.rest?.toString() ?? null
    }
  }
  return { content, rest }
}
