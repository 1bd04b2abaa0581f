/**
 * Tracked links and the pixel: which links are replaced, that nothing else changes, that each leads back to its target,
 * for real newsletters and for html that means harm.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import { Parser } from 'htmlparser2'
import t from 'tap'
import { findLinks } from '../../src/content/html/find-links.ts'
import { fillHtml, instrumentHtml, linkTargets, type FillOptions } from '../../src/content/html/instrument-html.ts'
import { maskTemplate } from '../../src/content/template/parse-template.ts'
import type { Variables } from '../../src/mail/message.ts'

const CORPUS = new URL('../../../shared/corpora/html/', import.meta.url)
const HOST = 'https://t.acme.test'
const PIXEL_URL = `${HOST}/o/token`
const PIXEL = `<img src="${PIXEL_URL}" width="1" height="1" alt="" style="border:0">`
const linkUrl = (linkNumber: number): string => `${HOST}/c/${linkNumber}`
/** In expectations: where link n and the pixel stand. */
const marked = (html: string): string =>
  html.replace(/@(\d+)/g, (_, linkNumber: string) => linkUrl(Number(linkNumber))).replace('<PIXEL>', PIXEL)

interface Change extends Partial<FillOptions> {
  hasVariables?: boolean
}

function instrumented(html: string, change: Change = {}): string {
  const { hasVariables = change.variables !== undefined, ...options } = change
  return fillHtml(instrumentHtml(html, hasVariables), {
    variables: {},
    linkUrl,
    pixelUrl: null,
    unsubscribeUrl: null,
    rewritesLinks: true,
    ...options,
  })
}

/** Html, and what becomes of it when links are tracked. */
const LINKS: [what: string, html: string, expected: string][] = [
  ['a link', '<a href="https://x.test/">x</a>', '<a href="@0">x</a>'],
  ['its quotes are kept', `<a href='https://x.test/'>x</a>`, `<a href='@0'>x</a>`],
  ['and added where there were none', '<a href=https://x.test/ id=i>x</a>', '<a href="@0" id=i>x</a>'],
  ['also at the end of a tag', '<a href=https://x.test/>x</a>', '<a href="@0">x</a>'],
  ['an area', '<area shape="rect" href="http://x.test/a">', '<area shape="rect" href="@0">'],
  ['in any case and spacing', '<A\nHREF \t= "HTTPS://X.test/">x</A>', '<A\nHREF \t= "@0">x</A>'],
  ['white space around the target', '<a href=" \n https://x.test/ ">x</a>', '<a href="@0">x</a>'],
  ['entities', '<a href="&#104;ttps://x.test/?a=1&amp;b=2">x</a>', '<a href="@0">x</a>'],
  [
    'equal targets share a number',
    '<a href="https://x.test/?a&amp;b">1</a><a href="https://x.test/2">2</a><a href=\'https://x.test/?a&b\'>3</a>',
    '<a href="@0">1</a><a href="@1">2</a><a href=\'@0\'>3</a>',
  ],
  [
    'a link whose text is a URL keeps its text',
    '<a href="https://x.test/">https://x.test/</a>',
    '<a href="@0">https://x.test/</a>',
  ],
  [
    'the first of two attributes',
    '<a href="https://x.test/1" href="https://x.test/2">x</a>',
    '<a href="@0" href="https://x.test/2">x</a>',
  ],
  ['a closing bracket in an attribute', '<a title=">" href="https://x.test/">x</a>', '<a title=">" href="@0">x</a>'],
  ['a self-closed tag', '<a href="https://x.test/"/>', '<a href="@0"/>'],
  ['braces where nothing is substituted', '<a href="https://x.test/{{id}}">x</a>', '<a href="@0">x</a>'],
]

/** What stays as it is. */
const UNTOUCHED: string[] = [
  '<a href="mailto:ada@x.test">x</a>',
  '<a href="tel:+491">x</a>',
  '<a href="sms:+491">x</a>',
  '<a href="cid:1">x</a>',
  '<a href="data:text/html,x">x</a>',
  '<a href="javascript:alert(1)">x</a>',
  '<a href=" jAvascript:alert(1)">x</a>',
  '<a href="java\nscript:alert(1)">x</a>',
  '<a href="#top">x</a>',
  '<a href="/page">x</a>',
  '<a href="page">x</a>',
  '<a href="//evil.test/">x</a>',
  '<a href="https:evil.test">x</a>',
  '<a href="https:/evil.test">x</a>',
  '<a href="">x</a>',
  '<a href>x</a>',
  '<a>x</a>',
  '<a href name="https://x.test/">x</a>',
  '<a href="" href="https://x.test/">x</a>',
  '<a xhref="https://x.test/">x</a>',
  '<b href="https://x.test/">x</b>',
  '<a title=\'href="https://x.test/"\'>x</a>',
  `<a href="${HOST}/u/abc">x</a>`,
  `<a href="${HOST.toUpperCase()}">x</a>`,
  `<a href="https://u:p@t.acme.test/x">x</a>`,
  '<base href="https://x.test/">',
  '<link rel="stylesheet" href="https://x.test/s.css">',
  '<form action="https://x.test/"><button>x</button></form>',
  '<img src="https://x.test/i.png">',
  '<!-- <a href="https://x.test/">x</a> -->',
  '<!--[if mso]><a href="https://x.test/">x</a><![endif]-->',
  '<style>a{}<a href="https://x.test/"></style>',
  '<script>"<a href=\'https://x.test/\'>"</script>',
  '<template><a href="https://x.test/">x</a></template>',
  '<noscript><a href="https://x.test/">x</a></noscript>',
  '<title><a href="https://x.test/"></title>',
  '<textarea><a href="https://x.test/"></textarea>',
  '<a data-track="off" href="https://x.test/">x</a>',
  '<a href="https://x.test/" DATA-TRACK=" Off ">x</a>',
  '<div data-track=off><p><b><a href="https://x.test/">x</a></b></p></div>',
  '<body data-track="off"></body><a href="https://x.test/">x</a>',
  '<table><tr><td data-track="off"></div></p><a href="https://x.test/">x</a></td></tr></table>',
  '<div data-track="off"><table><tr><td></div><a href="https://x.test/">x</a></table></div>',
  '<div data-track="off"><div></div><a href="https://x.test/">x</a></div>',
  '<p><b data-track="off">one</p><a href="https://x.test/">x</a></b>',
  '<i><p data-track="off">one</i><a href="https://x.test/">x</a></p>',
  `<a href="https://x.test/${'a'.repeat(8_193 - 15)}">x</a>`,
  '<a href="https://x.test/',
  '<a href="https://x.test/"',
  'text & more < text > &amp; &copy',
  '\uFEFF<p>ü€😀</p>\r\n\0',
]

t.test('links are replaced in place', async (t) => {
  for (const [what, html, expected] of LINKS) t.equal(instrumented(html), marked(expected), what)
  const conditional = '<!--[if !mso]><!--><a href="https://x.test/">x</a><!--<![endif]-->'
  t.equal(instrumented(conditional), conditional.replace('https://x.test/', linkUrl(0)), 'a revealed condition is html')
  const long = `https://x.test/${'a'.repeat(8_192 - 15)}`
  t.equal(instrumented(`<a href="${long}">`), `<a href="${linkUrl(0)}">`, 'a target of 8,192 characters')
})

t.test('everything else stays, byte for byte', async (t) => {
  for (const html of UNTOUCHED) t.equal(instrumented(html), html, html.slice(0, 100))
  const html = LINKS.map(([, each]) => each).join('\n')
  t.equal(instrumented(html, { rewritesLinks: false }), html, 'nothing, when links are not tracked')
  const own = '<a href="https://acme.test/u?id=1&amp;x">x</a><a href="https://acme.test/">y</a>'
  const other = own.replace('https://acme.test/"', `${linkUrl(1)}"`)
  t.equal(instrumented(own, { unsubscribeUrl: 'https://acme.test/u?id=1&x' }), other, 'the address to unsubscribe at')
})

t.test('an element that is switched off ends where a browser ends it', async (t) => {
  const ended = [
    '<div data-track=off></div>',
    '<img data-track=off>',
    '<br data-track="off"/>',
    '<p data-track=off>one<p>',
    '<ul><li data-track=off>one<li>',
    '<table><tr><td data-track=off>1<td>',
    '<table><tr data-track=off><td>1<tr><td>',
    '<div><p data-track=off>one</div>',
    '<a data-track=off href=https://x.test/>one',
    '<b><span data-track=off>one</b>',
    '<noscript></noscript>',
    '<template><td></template>',
    '<dl><dt data-track=off>1<dd>',
    '<div data-track=on>',
    '<div data-track>',
  ]
  for (const before of ended) {
    const html = `${before}<a href="https://x.test/2">x</a>`
    t.equal(instrumented(html), html.replace('https://x.test/2', linkUrl(0)), html)
  }
})

t.test('at most 1,000 links have numbers', async (t) => {
  const link = (index: number): string => `<a href="https://x.test/${index}">x</a>`
  const html = Array.from({ length: 1_500 }, (_, index) => link(index)).join('') + link(7)
  const found = [...instrumented(html).matchAll(/href="([^"]*)"/g)].map(([, target]) => target)
  t.same(
    found.slice(0, 1_000),
    Array.from({ length: 1_000 }, (_, index) => linkUrl(index)),
  )
  t.equal(found[1_000], 'https://x.test/1000', 'later ones stay')
  t.equal(found[1_500], linkUrl(7), 'but for those that share one')
})

t.test('the pixel stands before the last end of the body, else at the end of what is shown', async (t) => {
  const places = [
    'text<PIXEL>',
    '<p>x</p><PIXEL>',
    '<body>x<PIXEL></body></html>',
    '<body>1</body>2<body>3<PIXEL></BODY >',
    '<body>x<PIXEL></body><!-- </body> -->',
    '<body>x<!--[if mso]></body><![endif]--><PIXEL>',
    '<script>"</body>"</script><PIXEL>',
    '<style></body></style>x<PIXEL>',
    '<a href="</body>">x</a><PIXEL>',
    'x<PIXEL><!-- open',
    'x<PIXEL><a href="x',
    'x<PIXEL><a href="https://x.test/" ',
    'x<PIXEL><style>p{}',
    'x<PIXEL></body',
    'x<PIXEL></',
    'x<PIXEL><scr',
    'x<PIXEL><br/',
    'x<PIXEL><!doctype',
    'x<PIXEL><![CDATA[',
    'x<PIXEL><textarea>y',
    'x<PIXEL><noscript>y</body>',
    'x<PIXEL><template>y',
    'x < y<PIXEL>',
    'x &am<PIXEL>',
    '<PIXEL>',
    '<!doctype html><PIXEL>',
  ]
  for (const place of places) {
    t.equal(instrumented(place.replace('<PIXEL>', ''), { pixelUrl: PIXEL_URL }), marked(place), place)
  }
  const both = '<body><a href="https://x.test/">x</a><PIXEL></body><a href="https://x.test/">y</a>'
  const expected = both.replaceAll('https://x.test/', linkUrl(0)).replace('<PIXEL>', PIXEL)
  t.equal(instrumented(both.replace('<PIXEL>', ''), { pixelUrl: PIXEL_URL }), expected, 'between two links')
})

const LONG = `https://x.test/${'a'.repeat(8_192)}`

interface Filled {
  html: string
  variables: Variables
  /** What comes out. */
  is: string
  /** Where its links lead. */
  to: (string | undefined)[]
}

const LINK = '<a href="{{u}}">x</a>'
const RAW_LINK = '<a href="{{{u}}}">x</a>'
const TRACKED = '<a href="@0">x</a>'

const FILLED: Filled[] = [
  { html: LINK, variables: { u: 'https://x.test/?a=1&b="2"' }, is: TRACKED, to: ['https://x.test/?a=1&b="2"'] },
  { html: LINK, variables: { u: ' https://x.test/\r\nX: y' }, is: TRACKED, to: ['https://x.test/X: y'] },
  { html: LINK, variables: { u: 'javascript:"1"' }, is: '<a href="javascript:&quot;1&quot;">x</a>', to: [undefined] },
  { html: LINK, variables: { u: '//evil.test/' }, is: '<a href="//evil.test/">x</a>', to: [undefined] },
  { html: LINK, variables: { u: LONG }, is: `<a href="${LONG}">x</a>`, to: [undefined] },
  { html: LINK, variables: { u: '{{u}}' }, is: '<a href="{{u}}">x</a>', to: [undefined] },
  // As a browser reads html (WHATWG HTML, 13.2.5.36 and 13.2.5.80).
  { html: '<a href="https://x.test/\0">x</a>', variables: {}, is: TRACKED, to: ['https://x.test/\uFFFD'] },
  {
    html: '<a href="https://x.test/&#0;&#xD800;">x</a>',
    variables: {},
    is: TRACKED,
    to: ['https://x.test/\uFFFD\uFFFD'],
  },
  { html: '<a href="\0https://x.test/">x</a>', variables: {}, is: '<a href="\0https://x.test/">x</a>', to: [] },
  { html: RAW_LINK, variables: { u: 'https://x.test/?a&amp;b' }, is: TRACKED, to: ['https://x.test/?a&b'] },
  { html: RAW_LINK, variables: { u: 'https://x/" id="i' }, is: '<a href="https://x/" id="i">x</a>', to: [undefined] },
  { html: `<a href='{{{u}}}'>`, variables: { u: 'https://x.test/"' }, is: `<a href='@0'>`, to: ['https://x.test/"'] },
  { html: '<a href={{u}}>x</a>', variables: { u: 'https://x.test/?a=b' }, is: TRACKED, to: ['https://x.test/?a=b'] },
  { html: '<a href={{u}}>', variables: { u: 'https://x/ id=i' }, is: '<a href=https://x/ id=i>', to: [undefined] },
  {
    html: '<a href="https://x.test/?id={{id}}&amp;z">{{id}}</a>',
    variables: { id: '<7>' },
    is: '<a href="@0">&lt;7&gt;</a>',
    to: ['https://x.test/?id=<7>&z'],
  },
  {
    html: '<a href="{{scheme}}://x.test/{{page|home}}">x</a>',
    variables: { scheme: 'https' },
    is: TRACKED,
    to: ['https://x.test/home'],
  },
  {
    html: '<a href="mailto:{{to}}">x</a>',
    variables: { to: 'https://x.test/' },
    is: '<a href="mailto:https://x.test/">x</a>',
    to: [],
  },
  {
    html: '<a {{{more}}} href="https://x.test/">',
    variables: { more: 'id="i"' },
    is: '<a id="i" href="@0">',
    to: ['https://x.test/'],
  },
  { html: '{{name|<a href="https://x.test/">}}', variables: { name: 'Ada' }, is: 'Ada', to: [] },
  {
    html: '<!-- {{n}} --><p title="{{n}}">{{{n}}}',
    variables: { n: '<b>' },
    is: '<!-- &lt;b&gt; --><p title="&lt;b&gt;"><b>',
    to: [],
  },
  { html: '<a href="https://x/&copy{{n}}">x</a>', variables: { n: 2 }, is: TRACKED, to: ['https://x/&copy2'] },
]

t.test('a target with variables is judged and found for each recipient', async (t) => {
  for (const { html, variables, is, to } of FILLED) {
    t.equal(instrumented(html, { variables }), marked(is), html)
    t.same(linkTargets(instrumentHtml(html, true), variables, null), to, html)
  }
  const template = instrumentHtml('<a href="{{u}}">1</a><a href="{{u}}">2</a><a href="{{v}}">3</a>', true)
  const fill = (variables: Variables): string =>
    fillHtml(template, { variables, linkUrl, pixelUrl: null, unsubscribeUrl: null, rewritesLinks: true })
  t.equal(fill({ u: 'http://x.test', v: 'x' }), marked('<a href="@0">1</a><a href="@0">2</a><a href="x">3</a>'))
  t.equal(fill({ u: 'x', v: 'http://x.test' }), marked('<a href="x">1</a><a href="x">2</a><a href="@1">3</a>'))
  t.throws(() => fill({ u: 'x' }), /no value for the variable "v"/)
})

t.test('{{unsubscribe_url}} is the address to unsubscribe at, unless the recipient has one', async (t) => {
  const html =
    '<a href="{{unsubscribe_url}}">1</a> {{unsubscribe_url}} ' + '<a href="https://x.test/?u={{unsubscribe_url}}">2</a>'
  const unsubscribeUrl = 'https://acme.test/u?a&b'
  t.equal(
    instrumented(html, { unsubscribeUrl, variables: {} }),
    marked('<a href="https://acme.test/u?a&amp;b">1</a> https://acme.test/u?a&amp;b <a href="@1">2</a>'),
  )
  const targets = [unsubscribeUrl, `https://x.test/?u=${unsubscribeUrl}`]
  t.same(linkTargets(instrumentHtml(html, true), {}, unsubscribeUrl), targets)
  t.equal(
    instrumented(html, { unsubscribeUrl, variables: { unsubscribe_url: 'https://own.test/' } }),
    marked('<a href="https://own.test/">1</a> https://own.test/ <a href="@1">2</a>'),
  )
  t.equal(
    instrumented(html, { unsubscribeUrl }),
    html.replace('https://x.test/?u={{unsubscribe_url}}', linkUrl(0)),
    'without variables braces are text',
  )
})

/** What an independent parser makes of html: tags, texts and comments in order, links of `a` and `area` apart. */
function parsed(html: string): { tree: string[]; links: string[]; images: string[] } {
  const tree: string[] = []
  const links: string[] = []
  const images: string[] = []
  const addText = (text: string): void => {
    const last = tree.length - 1
    if (tree[last]?.startsWith('text ') === true) tree[last] += text
    else tree.push(`text ${text}`)
  }
  const parser = new Parser(
    {
      onopentag(name, { ...attributes }) {
        if (name === 'img' && attributes['src'] === PIXEL_URL) return void images.push(JSON.stringify(attributes))
        if (name === 'a' || name === 'area') links.push(attributes['href'] ?? '')
        if (name === 'a' || name === 'area') delete attributes['href']
        tree.push(`<${name} ${JSON.stringify(attributes)}`)
      },
      onclosetag: (name) => void (name === 'img' || tree.push(`</${name}`)),
      ontext: addText,
      oncomment: (text) => void tree.push(`comment ${text}`),
      onprocessinginstruction: (_, text) => void tree.push(`instruction ${text}`),
    },
    { decodeEntities: true },
  )
  parser.end(html)
  return { tree, links, images }
}

const files = existsSync(CORPUS)
  ? readdirSync(CORPUS, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.html'))
  : []

const isEqual = (left: unknown, right: unknown): boolean => JSON.stringify(left) === JSON.stringify(right)
const skip = files.length === 0 && 'the corpora are not there'
t.test('newsletters keep their tree but for links and the pixel', { skip }, async (t) => {
  const differing: string[] = []
  let trackedLinks = 0
  for (const file of files) {
    const html = readFileSync(new URL(file, CORPUS), 'utf8')
    const targets = linkTargets(instrumentHtml(html, false), {}, null)
    const [before, after] = [parsed(html), parsed(instrumented(html, { pixelUrl: PIXEL_URL }))]
    const tracked = after.links.filter((link) => link.startsWith(HOST))
    const expected = before.links.filter((link) => /^\s*https?:\/\//i.test(link))
    const ledTo = tracked.map((link) => targets[Number(link.slice(`${HOST}/c/`.length))])
    const isSame = isEqual(before.tree, after.tree) && before.links.length === after.links.length
    const isLedBack = isEqual(
      ledTo,
      expected.map((link) => link.trim()),
    )
    if (!isSame || !isLedBack || after.images.length !== 1) differing.push(file)
    trackedLinks += tracked.length
  }
  t.same(differing, [])
  t.comment(`${files.length} files, ${trackedLinks} tracked links`)
  t.ok(trackedLinks > 100)
})

t.test('html that means harm takes linear time and changes nothing but links', async (t) => {
  const size = process.env['TEST_SCALE'] === 'full' ? 10_000_000 : 300_000
  const pieces = [
    '<div>',
    '<div data-track=off>',
    '</div>',
    '<table><tr><td>',
    '<p>',
    '<ul><li>',
    '<td><div></table>',
    '<',
    '</',
    '<a ',
    '<a href="https://x.test/" ',
    '<a href=',
    '<!--',
    '<!--a-->',
    '<!doctype>',
    '<![CDATA[',
    '<script>',
    '<title></title>',
    '&',
    '&amp',
    '&#x41;',
    '</body>',
    '{{',
    '{{a}}',
    '<a href="{{a}}">',
    '<a href=" ',
    '"',
    "'",
    '<template>',
    '<b></i>',
  ]
  for (const piece of pieces) {
    const html = piece.repeat(Math.ceil(size / piece.length))
    const before = process.cpuUsage()
    t.equal(
      fillHtml(instrumentHtml(html, true), {
        variables: { a: '' },
        linkUrl,
        pixelUrl: null,
        unsubscribeUrl: null,
        rewritesLinks: false,
      }).length,
      html.replaceAll('{{a}}', '').length,
      piece,
    )
    const { user, system } = process.cpuUsage(before)
    t.ok((user + system) / size < 10, `${piece}: ${((user + system) / size).toFixed(2)} microseconds a character`)
  }
})

t.test('any html comes out as it went in, but for what is tracked', async (t) => {
  const bits = fc.constantFrom(
    '<a href=',
    '"',
    "'",
    'https://x.test/',
    '{{a}}',
    '{{{b}}}',
    '>',
    '</a>',
    '<!--',
    '-->',
    '<div ',
    'data-track=off',
    ' ',
    '</div>',
    '<script>',
    '</script>',
    '&amp;',
    '<body>',
    '</body>',
    '=',
    '/',
    'x',
    '\n',
    '<',
    '<p>',
    '<td>',
  )
  const property = fc.property(fc.array(bits, { maxLength: 60 }), (chosen) => {
    const html = chosen.join('')
    if (instrumented(html, { rewritesLinks: false }) !== html) return false
    const [before, after] = [parsed(html), parsed(instrumented(html, { pixelUrl: PIXEL_URL }))]
    return after.images.length === 1 && isEqual(after.tree, before.tree)
  })
  t.doesNotThrow(() => fc.assert(property, { numRuns: process.env['TEST_SCALE'] === 'full' ? 50_000 : 1_000 }))
})

t.test('what is switched off in front of it changes nothing about any html', async (t) => {
  const bits = fc.constantFrom(
    '<a href="https://x.test/?a=1&amp;b=2&ampx;">',
    '</a>',
    '<!--',
    '-->',
    '<div ',
    'data-track=off',
    '>',
    ' ',
    '</div>',
    '<div>',
    '<style>',
    '</style>',
    '<title>',
    '<body>',
    '</body>',
    '<p>',
    '<td>',
    '<table>',
    '</table>',
    '<b>',
    '</b>',
    '<br/>',
    '<noscript>',
    '</noscript>',
    '<template>',
    '<A HREF=https://y.test/>',
    'x',
    '"',
    '<area href="http://z.test">',
  )
  const front = '<u data-track="off"></u>'
  let links = 0
  fc.assert(
    fc.property(fc.array(bits, { maxLength: 40 }), (chosen) => {
      const [alone, behind] = ['', front].map((start) => findLinks(maskTemplate([start + chosen.join('')])))
      links += alone?.links.length ?? 0
      const moved = behind?.links.map((link) => ({
        ...link,
        start: link.start - front.length,
        end: link.end - front.length,
      }))
      const placesOf = (found: readonly { start: number; end: number; value: unknown }[] | undefined) =>
        found?.map(({ start, end, value }) => ({ start, end, value }))
      return (
        isDeepStrictEqual(placesOf(moved), placesOf(alone?.links)) &&
        behind?.pixelAt === (alone?.pixelAt ?? 0) + front.length
      )
    }),
    { numRuns: 3_000 },
  )
  t.ok(links > 300, `${links} links`)
})
