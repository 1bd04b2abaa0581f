/**
 * Html tokens: the same as htmlparser2's tokenizer alone gives, for real newsletters and for html of any kind.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import { Tokenizer } from 'htmlparser2'
import t from 'tap'
import { readHtmlTokens, type HtmlTokens } from '../../src/content/html/html-tokens.ts'

const CORPUS = new URL('../../../shared/corpora/html/', import.meta.url)
const WANTED = new Set(['href', 'data-track'])
/** What is inside of these is not told as text, and neither is where a text is cut. */
const UNTOLD = new Set(['style', 'title'])
/** WHATWG HTML 13.2.5: raw text, escapable raw text, scripts. */
const TEXT_ONLY = new Set(['script', 'style', 'textarea', 'title', 'iframe', 'noembed', 'noframes', 'xmp', 'plaintext'])
const IS_FULL = process.env['TEST_SCALE'] === 'full'

interface Recorder {
  tokens: HtmlTokens
  events: string[]
  textEnd(): number
}

/** Every token, and with each that ends something where the text before it ended. */
function createRecorder(): Recorder {
  const events: string[] = []
  let name = ''
  let isUntold = false
  let textEnd = 0
  const tokens: HtmlTokens = {
    text(_, end) {
      if (!isUntold) textEnd = end
    },
    tagName(tagName, isTextOnly) {
      name = tagName
      events.push(`<${name}${isTextOnly ? ' of text' : ''}`)
    },
    wantedAttributes: [...WANTED],
    attributeName(attribute, end) {
      if (!WANTED.has(attribute)) return false
      events.push(`${attribute} ${end}`)
      return true
    },
    attributeValue(start, end) {
      if (end > start) events.push(`value ${start} ${end}`)
    },
    attributeEntity: (codePoint) => void events.push(`&${codePoint}`),
    attributeEnd: (end) => void events.push(`value ends ${end}`),
    tagEnd(end) {
      isUntold = UNTOLD.has(name)
      events.push(`tag ends ${end} behind text ${textEnd}`)
    },
    closeTag(start, nameEnd, end) {
      isUntold = false
      events.push(`</ ${start} ${nameEnd} ${end} behind text ${textEnd}`)
    },
    markupEnd: (end) => void events.push(`! ${end} behind text ${textEnd}`),
  }
  return { tokens, events, textEnd: () => textEnd }
}

function expected(html: string): string[] {
  const recorder = createRecorder()
  const { tokens } = recorder
  let isWanted = false
  const tokenizer = new Tokenizer(
    { decodeEntities: true },
    {
      ontext: (start, end) => {
        if (start >= 0) tokens.text(start, end)
      },
      ontextentity: (_, end) => tokens.text(end, end),
      onopentagname: (start, end) => {
        const name = html.slice(start, end).toLowerCase()
        tokens.tagName(name, TEXT_ONLY.has(name))
      },
      onattribname: (start, end) => {
        isWanted = tokens.attributeName(html.slice(start, end).toLowerCase(), end)
      },
      onattribdata: (start, end) => isWanted && tokens.attributeValue(start, end),
      onattribentity: (codePoint) => isWanted && tokens.attributeEntity(codePoint),
      onattribend: (_, end) => isWanted && tokens.attributeEnd(end),
      onopentagend: tokens.tagEnd,
      onselfclosingtag: tokens.tagEnd,
      onclosetag: (start, nameEnd) => {
        const end = html.indexOf('>', nameEnd)
        if (end >= 0) tokens.closeTag(start, nameEnd, end)
      },
      oncdata: (_, end) => tokens.markupEnd(end),
      oncomment: (_, end) => tokens.markupEnd(end),
      ondeclaration: (_, end) => tokens.markupEnd(end),
      onprocessinginstruction: () => {},
      onend: () => {},
    },
  )
  tokenizer.write(html)
  tokenizer.end()
  return lastReading(recorder)
}

function read(html: string): string[] {
  const recorder = createRecorder()
  readHtmlTokens(html, recorder.tokens)
  return lastReading(recorder)
}

/** What is told of a tag that never ends counts for nothing: it may be told twice, or not at all. */
function lastReading({ events, textEnd }: Recorder): string[] {
  const counted = events.filter((event, index) => {
    const isOfTag = !/^(?:tag|<\/|!)/.test(event)
    if (!isOfTag) return true
    return (
      events
        .slice(index + 1)
        .find((later) => /^(?:<|tag|!)/.test(later))
        ?.startsWith('tag') === true
    )
  })
  return [...counted, `text ends ${textEnd()}`]
}

t.test('real newsletters', { skip: existsSync(CORPUS) ? false : 'the corpora are not there' }, async (t) => {
  const names = readdirSync(CORPUS, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.html'))
  t.ok(names.length > 0)
  for (const name of names) {
    const html = readFileSync(new URL(name, CORPUS), 'utf8')
    t.strictSame(read(html), expected(html), name)
  }
})

t.test('any html', async (t) => {
  const bits = fc.constantFrom(
    '<',
    '>',
    '</',
    '/>',
    '/',
    '<a',
    '<AREA',
    ' href',
    ' HREF=',
    '=',
    '"',
    "'",
    ' ',
    '\n',
    'x',
    '&copy',
    '&copyx=',
    '&#65;',
    '&',
    'https://x.test/?a=1&amp;b=2',
    '<!--',
    '-->',
    '--!>',
    '--',
    '-',
    '<!doctype html>',
    '<!DOCTYPE',
    '<![endif]',
    '<?xml',
    '<style>',
    '</style>',
    '</STYLE >',
    '<title>',
    '</title>',
    '<script>',
    '</script>',
    '<textarea>',
    '</textarea>',
    '<p style="a:b">',
    '</p>',
    '<br/>',
    '<a href="https://x.test/">',
    "<a href='&amp;'>",
    '<a href=x>',
    '</a>',
    ' data-track="off"',
    '\x0f',
    '\x1c',
    'é',
    '<3',
  )
  const property = fc.property(fc.array(bits, { maxLength: 16 }), (parts) => {
    const html = parts.join('')
    return isDeepStrictEqual(read(html), expected(html))
  })
  t.doesNotThrow(() => fc.assert(property, { numRuns: IS_FULL ? 200_000 : 10_000 }))
})
