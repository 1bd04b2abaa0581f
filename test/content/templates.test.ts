/**
 * Placeholders, values, what is wrong with them, and the text made from html.
 */
import { existsSync, readFileSync } from 'node:fs'
import fc from 'fast-check'
import t from 'tap'
import { unquotedPlaceholder } from '../../src/content/html/unquoted-attribute.ts'
import { parseTemplate } from '../../src/content/template/parse-template.ts'
import { plainTextOf } from '../../src/content/html/plain-text.ts'
import { escapeHtml } from '../../src/base/escape-html.ts'
import { escapedBytes, substitute } from '../../src/content/template/substitute-variables.ts'
import { MOST_BODY_BYTES, readTemplates } from '../../src/content/template/template-problems.ts'

const HTML_CORPUS = new URL('../../../shared/corpora/html/', import.meta.url)

function content(fields: { subject?: string; html?: string | null; text?: string | null; hasVariables?: boolean }) {
  return { subject: '', html: null, text: null, hasVariables: true, ...fields }
}

type Content = Parameters<typeof readTemplates>[0]
type Values = Parameters<ReturnType<typeof readTemplates>['problems']>[0]

/** Each as `variables.name: …` or `subject: …`. */
function templateProblems(given: Content, values: Values): string[] {
  return readTemplates(given)
    .problems(values)
    .map(({ about, name, text }) => `${about === 'variable' ? 'variables.' : ''}${name}: ${text}`)
}

const usableVariables = (given: Content, values: Values) => readTemplates(given).usable(values)

t.test('placeholders are replaced, and escaped in html only', async (t) => {
  const variables = { name: '<b>"A" & \'B\'</b>', no: 1042, paid: false, empty: '', 'a.b': 'dot', 'two words': 'w' }
  const escaped = '&lt;b&gt;&quot;A&quot; &amp; &#39;B&#39;&lt;/b&gt;'
  const cases: [string, string, string][] = [
    ['Hi {{name}}', `Hi ${escaped}`, `Hi ${variables.name}`],
    ['{{{name}}}', variables.name, variables.name],
    ['{{ name }}', escaped, variables.name],
    ['{{{  name  }}}', variables.name, variables.name],
    ['{{no}}/{{paid}}/{{empty}}', '1042/false/', '1042/false/'],
    ['{{a.b}} {{two words}}', 'dot w', 'dot w'],
    ['{{none|friend}}', 'friend', 'friend'],
    ['{{ none | friend }}', ' friend', ' friend'],
    ['{{none|<i>}} {{{none|<i>}}}', '&lt;i&gt; <i>', '<i> <i>'],
    ['{{none|}}', '', ''],
    ['{{none|a|b}}', 'a|b', 'a|b'],
    ['{{empty|unused}}', '', ''],
    ['{{{{no}}}}', '{1042}', '{1042}'],
    ['{{no}}}', '1042}', '1042}'],
  ]
  for (const [template, html, text] of cases) {
    t.equal(substitute(parseTemplate(template, 'html'), variables), html, `${template} in html`)
    t.equal(substitute(parseTemplate(template, 'text'), variables), text, `${template} in text`)
  }
})

t.test('braces that make no placeholder stay as they are', async (t) => {
  const texts = [
    '{{',
    '}}',
    '{{}}',
    '{{ }}',
    '{{|x}}',
    '{{a',
    'a}}',
    '{a}',
    '{{a}',
    '{{a\nb}}',
    '{{a\rb}}',
    '{{{a}',
    `{{${'k'.repeat(65)}}}`,
    '@media{a{b:c}}',
    '{{{}}}',
    '{ {a} }',
    '{{{{',
  ]
  for (const text of texts) {
    t.strictSame(parseTemplate(text, 'html'), [text], JSON.stringify(text))
    t.strictSame(templateProblems(content({ text }), {}), [], 'and nothing is missing')
  }
  t.equal(parseTemplate(`{{${'😀'.repeat(64)}}}`, 'text').length, 1, 'a key of 64 characters')
  t.strictSame(parseTemplate('', 'html'), [])
})

t.test('a value is never expanded, and no character in it has a meaning', async (t) => {
  const tricky = ['{{b}}', '{{{b}}}', '$&', '$1', '$$', "$'", '\\', '%s', '}}', '{{', '{{a}}']
  for (const a of tricky) {
    t.equal(substitute(parseTemplate('[{{{a}}}][{{b}}]', 'text'), { a, b: 'B' }), `[${a}][B]`, JSON.stringify(a))
  }
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(fc.string(), fc.string(), fc.string(), (before, value, after) => {
        const rendered = substitute(parseTemplate(`${noBraces(before)}{{key}}${noBraces(after)}`, 'html'), {
          key: value,
        })
        return rendered === noBraces(before) + escapeHtml(value) + noBraces(after)
      }),
      { numRuns: 1_000 },
    ),
  )
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(fc.string(), (value) => {
        // What a browser reads back is the value: escaped exactly once, and nothing is left that could be markup.
        const escaped = escapeHtml(value)
        const isOfSize = escapedBytes(value) === Buffer.byteLength(escaped)
        return isOfSize && !/[<>"']/.test(escaped) && unescapeHtml(escaped) === value
      }),
    ),
  )
})

t.test('only own values count, whatever the key is called', async (t) => {
  const names = ['constructor', '__proto__', 'toString', 'prototype', 'hasOwnProperty']
  for (const name of names) {
    const used = content({ subject: `{{${name}}}` })
    t.strictSame(templateProblems(used, {}), [`variables.${name}: used in subject, not given`])
    t.throws(() => substitute(parseTemplate(`{{${name}}}`, 'text'), {}), /no value/)
    const raw: unknown = JSON.parse(`{"${name}":"own"}`)
    const given = typeof raw === 'object' && raw !== null ? { ...raw } : {}
    t.strictSame(templateProblems(used, given), [], `${name} can be given`)
    const kept = usableVariables(used, given)
    t.equal(Object.getPrototypeOf(kept), null)
    t.equal(substitute(parseTemplate(`{{${name}}}`, 'text'), kept), 'own')
    const copied = structuredClone(kept)
    t.equal(substitute(parseTemplate(`{{${name}}}`, 'text'), copied), 'own', 'also after a copy to a thread')
  }
  t.equal(Object.hasOwn(Object.prototype, 'own'), false)
  const inherited = Object.create({ name: 'inherited' })
  t.equal(templateProblems(content({ subject: '{{name}}' }), inherited).length, 1, 'an inherited value is missing')
  t.throws(() => substitute(parseTemplate('{{name}}', 'text'), inherited), /no value/)
})

t.test('every problem is found and named', async (t) => {
  const given = {
    user: { a: 1 },
    list: [1],
    nothing: null,
    line: 'a\r\nBcc: x@y.z',
    long: 'x'.repeat(999),
    big: '<'.repeat(2_000_000),
    z: 1,
  }
  const control = 'subject: has a line break or another control character'
  const filled = 'once its variables are filled in'
  const cases: [Parameters<typeof content>[0], string[]][] = [
    [{ subject: 'Hi {{name}}' }, ['variables.name: used in subject, not given']],
    [{ subject: 'Hi {{nothing}}' }, ['variables.nothing: used in subject, not given']],
    [
      { subject: '{{name}}', html: '{{name}} {{{name}}} {{no}}', text: '{{no}}' },
      ['variables.name: used in subject and html, not given', 'variables.no: used in html and text, not given'],
    ],
    [
      { html: '{{user}} {{list|x}}' },
      [
        'variables.user: used in html, must be a string, number or boolean, not an object',
        'variables.list: used in html, must be a string, number or boolean, not an array',
      ],
    ],
    [{ subject: '{{nothing|ok}} {{none|ok}}', html: 'x' }, []],
    [{ subject: '{{line}}' }, [`${control} ${filled}`]],
    [{ subject: 'a\nb', hasVariables: false }, [control]],
    [{ subject: 'tab\there' }, []],
    [{ subject: 'bell\u0007' }, [control]],
    [{ subject: '{{long}}' }, [`subject: has more than 998 characters ${filled}`]],
    [{ subject: 'x'.repeat(998) }, []],
    [{ subject: '😀'.repeat(998) }, []],
    [{ subject: `${'{{a|}}'.repeat(167)}` }, ['subject: has more than 998 characters']],
    [
      { html: '{{a|}}'.repeat(MOST_BODY_BYTES / 6 + 1) },
      [`html: has ${MOST_BODY_BYTES + 4} bytes, at most ${MOST_BODY_BYTES} are allowed`],
    ],
    [
      { html: `{{none|${'<'.repeat(2_000_000)}}}` },
      [`html: has 8000000 bytes, at most ${MOST_BODY_BYTES} are allowed ${filled}`],
    ],
    [{ html: `{{z|${'<'.repeat(2_000_000)}}}` }, []],
    [{ subject: '{{name}}', html: '{{x}}', hasVariables: false }, []],
    [{ html: '{{{big}}}', text: '{{big}}{{big}}' }, []],
    [
      { html: '{{big}}', text: '{{big}}{{big}}{{big}}' },
      [
        `html: has 8000000 bytes, at most ${MOST_BODY_BYTES} are allowed ${filled}`,
        `text: has 6000000 bytes, at most ${MOST_BODY_BYTES} are allowed ${filled}`,
      ],
    ],
    [{ text: 'ä'.repeat(MOST_BODY_BYTES / 2) }, []],
    [
      { text: `${'ä'.repeat(MOST_BODY_BYTES / 2)}x`, hasVariables: false },
      [`text: has ${MOST_BODY_BYTES + 1} bytes, at most ${MOST_BODY_BYTES} are allowed`],
    ],
  ]
  for (const [fields, problems] of cases) {
    t.strictSame(templateProblems(content(fields), given), problems, JSON.stringify(fields).slice(0, 60))
  }
  const kept = usableVariables(content({ html: '{{a}}{{n}}{{o}}{{z}}' }), { a: 'x', n: null, o: {}, b: 1, z: 0 })
  t.strictSame({ ...kept }, { a: 'x', z: 0 }, 'only what is used and usable is kept')
})

t.test('large and hostile templates cost linear time and little memory', async (t) => {
  const start = performance.now()
  const half = MOST_BODY_BYTES / 2
  for (const piece of ['{', '{{', '{{a', '{{{a}}', '{{a}} ', '{{{', 'a', '{{|']) {
    parseTemplate(piece.repeat(half / piece.length), 'html')
  }
  parseTemplate(`{{${'a'.repeat(half)}`, 'html')
  const many = content({ html: '{{big}}'.repeat(10_000) })
  const subject = content({ subject: '{{big}}'.repeat(5_000) })
  t.match(templateProblems(subject, { big: 'x'.repeat(1_000_000) }), ['subject: has more than 998 characters'])
  t.match(templateProblems(many, { big: 'x'.repeat(1_000_000) }), ['html: has 10000000000 bytes'])
  const forms = content({ html: Array.from({ length: 10_000 }, (_, index) => `{{big|${index}}}`).join('') })
  t.match(templateProblems(forms, { big: 'x'.repeat(1_000_000) }), ['html: has 10000000000 bytes'])
  const html = Array.from({ length: 10_000 }, (_, index) => `{{k${index}|}}`).join('')
  const wide = readTemplates(content({ html }))
  const bare = readTemplates(content({ html: html.replaceAll('|', '') }))
  for (let recipient = 0; recipient < 1_000; recipient++) {
    if (wide.problems({ k5: recipient }).length > 0) t.fail('fallbacks fill the rest')
    if (bare.problems({ k5: recipient }).length !== 100) t.fail('as many as an answer can show')
  }
  t.ok(performance.now() - start < 100_000, 'within seconds')
})

t.test('a field has 10,000 placeholders at most, and few of them begin URLs that differ', async (t) => {
  const placeholders = (count: number): Content => content({ html: '{{a}}'.repeat(count) })
  t.strictSame(templateProblems(placeholders(10_000), { a: 'x' }), [])
  const tooMany = ['html: has more than 10000 placeholders']
  for (const count of [10_001, 1_000_000]) t.strictSame(templateProblems(placeholders(count), { a: 'x' }), tooMany)
  // A list of links, all alike, is looked at once.
  const alike = content({ html: '<a href="{{a}}/{{b|}}">x</a>\n'.repeat(5_000) })
  t.strictSame(templateProblems(alike, { a: 'https://x.y' }), [])
  t.match(templateProblems(alike, { a: 'javascript:x' }), [/begins the URL of href in line 1 /])
  t.equal(templateProblems(alike, { a: 'javascript:x' }).length, 1)
  const different = (count: number): Content =>
    content({ html: Array.from({ length: count }, (_, index) => `<a href="{{a${index}|}}">`).join('') })
  t.strictSame(templateProblems(different(600), {}), [])
  const tooDifferent = ['html: has too many different URLs that begin with a variable']
  t.strictSame(templateProblems(different(700), {}), tooDifferent)
  t.strictSame(templateProblems(content({ html: `<a href="${'{{a}}'.repeat(9_000)}">` }), { a: '' }), tooDifferent)
  // Quadratic time took minutes here.
  const long = content({ html: `<a href="{{a}}${'\t'.repeat(600)}" href="{{b}}${' '.repeat(600)}x">`.repeat(4_000) })
  t.strictSame(templateProblems(long, { a: '', b: '' }), [])
})

t.test('html becomes the text a person would read', async (t) => {
  const cases: [string, string][] = [
    ['<p>Hi <b>Ada</b>,</p><p>your order</p>', 'Hi Ada,\n\nyour order'],
    ['a<br>b<br/>c', 'a\nb\nc'],
    ['  lots \n of   space ', 'lots of space'],
    ['<style>p{}</style><script>x()</script><title>T</title>x', 'x'],
    ['<div style="DISPLAY : none">preview</div><p>x</p>', 'x'],
    ['<div><span style="display:none">preview</div>x', 'x'],
    ['<div style="display:none"><div>preview</div></div>x<div hidden style="display:none">y</div>z', 'xz'],
    ['<p style="display:none">preview<div>x</div>', 'x'],
    ['<p style="display:none">a<p style="display:none">b<p>x', 'x'],
    ['<ul><li style="display:none">a<li>b</ul>', '- b'],
    ['<table><tr><td style="display:none">a<td>b<tr style="display:none"><td>c</table>x', 'b\n\nx'],
    ['<b><span style="display:none">a</b><p>x', 'x'],
    ['<b><div style="display:none">a</b>b</div>x', 'x'],
    ['<ul><li>one</li><li><p>two</p></li></ul>after', '- one\n- two\n\nafter'],
    ['<a href="https://x.y/z?a=1&amp;b=2">Order</a>', 'Order [https://x.y/z?a=1&b=2]'],
    ['<a href="https://x.y/">https://x.y/</a>', 'https://x.y/'],
    ['<a href="\n https://x.y/?a=1\r\n\t&amp;b=2 ">x</a>', 'x [https://x.y/?a=1&b=2]'],
    ['<a href="mailto:a@b.c">us</a> <a href="#top">top</a> <a href="javascript:x()">js</a>', 'us [a@b.c] top js'],
    ['<a href="https://x.y/"><img alt="Logo" src="l.png"></a>', 'Logo [https://x.y/]'],
    ['<a href="https://x.y/"><img src="l.png"></a>', 'https://x.y/'],
    ['<a href="https://x.y/1"><img></a><a href="https://x.y/2"><img></a>x', 'https://x.y/1 https://x.y/2 x'],
    ['(<a href="https://x.y/?q=a b">x</a>)', '(x [https://x.y/?q=a%20b])'],
    ['<ol><li>a<li>b<ul><li>c</ul><li>d</ol><li>e', '1. a\n2. b\n\n- c\n\n3. d\n\n- e'],
    ['<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>', 'a b\nc'],
    ['&lt;b&gt; &amp; &auml; &#128512;', '<b> & ä 😀'],
    ['<pre>a\n  b</pre>', 'a\n  b'],
    ['', ''],
    ['<p>unclosed <b>tags', 'unclosed tags'],
    ['<!-- no --><![CDATA[x]]>y</body></p>z', 'y\n\nz'],
  ]
  for (const [html, text] of cases) t.equal(plainTextOf(html), text, html)
  const start = performance.now()
  const tags = [
    '<div>',
    '<div></p>',
    '<i style=display:none><p>',
    '<p style=display:none></i>',
    '<svg><x>',
    '<a href="https://x.y/">',
    'x<br>',
    '<ul><li>',
  ]
  const pieces = [...tags, '<', '<!--', '&', ' ']
  for (const piece of pieces) plainTextOf(piece.repeat(200_000))
  t.ok(performance.now() - start < 60_000, 'hostile html takes seconds at most')
})

const skipCorpus = existsSync(HTML_CORPUS) ? false : 'the corpora are not there'
t.test('real newsletters give readable text', { skip: skipCorpus }, async (t) => {
  const meta = readFileSync(new URL('meta.jsonl', HTML_CORPUS), 'utf8').trim().split('\n')
  let files = 0
  for (const line of meta) {
    const entry: unknown = JSON.parse(line)
    if (typeof entry !== 'object' || entry === null || !('file' in entry) || typeof entry.file !== 'string') continue
    const text = plainTextOf(readFileSync(new URL(entry.file, HTML_CORPUS), 'utf8'))
    files++
    if (/<(?:td|div|style|script)[ >]|[ \t]\n|\n{3}/.test(text)) t.fail(`${entry.file} leaves markup or loose space`)
  }
  t.ok(files > 100, `${files} files were read`)
})

/** Text that cannot form a placeholder with what stands beside it. */
function noBraces(text: string): string {
  return text.replace(/[{}]/g, '')
}

function unescapeHtml(text: string): string {
  const quotes = text.replaceAll('&quot;', '"').replaceAll('&#39;', "'")
  return quotes.replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&amp;', '&')
}

t.test('a placeholder in an attribute without quotes is refused, and named', (t) => {
  t.equal(
    unquotedPlaceholder('<p>\n<a class="x y={{u}}" href={{u}}>'),
    'has a placeholder without quotes in line 2: write href="{{u}}"',
  )
  for (const html of [
    '<a href=https://x/{{u}}>',
    '<a href= {{u}}>',
    '<a\thref=/{{u|a b}}>',
    '<i a=1 b={{{u}}}c>',
    '<i a=&amp;{{u}}>',
  ]) {
    t.ok(unquotedPlaceholder(html), html)
  }
  for (const html of [
    '<a href="{{u}}">',
    "<a href = '{{u}}'>",
    '<p>x = {{u}}',
    '<a title="a = {{u}}">',
    '<!-- a={{u}} -->',
    '<p style="&quot;{{f}}"> x={{u}}',
    `<p style='&quot;{{f}}&quot;' title="&amp;{{u}}"> x={{u}}`,
  ]) {
    t.notOk(unquotedPlaceholder(html), html)
  }
  t.end()
})

t.test('a value does not bring a scheme that runs something', (t) => {
  const problemsOf = (html: string, u: string): string[] => {
    const content = { subject: '', html, text: null, hasVariables: true }
    return readTemplates(content)
      .problems({ u, v: 'script:x' })
      .map(({ name, text }) => `${name}: ${text}`)
  }
  const forms = [
    'javascript:alert(1)',
    'JaVaScRiPt:x',
    ' javascript:x',
    '\u0001javascript:x',
    'java\tscript:x',
    'java\nscript:x',
    '\u200bjavascript:x',
    'vbscript:x',
    'data:text/html,x',
    'file:///etc/passwd',
    'blob:x',
  ]
  const places = [
    '<a href="{{u}}">',
    "<a href='{{u}}'>",
    '<a HREF = " {{u}}/x">',
    '<img src="{{{u}}}">',
    '<form action="{{u|x}}">',
    '<svg><a xlink:href="{{u}}">',
  ]
  for (const html of places)
    for (const form of forms) t.equal(problemsOf(`\n${html}`, form).length, 1, `${html} ${form}`)
  t.same(problemsOf('<p>\n<a href="{{u}}">', 'javascript:x'), [
    'u: begins the URL of href in line 2 of the html with the scheme "javascript", which only the html itself may',
  ])
  for (const html of [
    '<a href="java{{v}}">',
    '<a href="{{u}}{{v}}">',
    '<a href="{{u}}:x">',
    '<a href="{{u|javascript}}:x">',
  ]) {
    t.equal(problemsOf(html, 'java').length + problemsOf(html, 'javascript').length > 0, true, html)
  }
  t.equal(problemsOf('<a href="{{{u}}}">', '&#106;avascript&colon;x').length, 1, 'references, where they are read')
  t.same(problemsOf('<a href="{{u}}">', '&#106;avascript&colon;x'), [], 'escaped they are text')
  const fine = [
    'https://acme.com/a:b',
    'HTTP://x',
    'mailto:a@b.c',
    'tel:+49',
    'cid:logo',
    '/a',
    'a/b:c',
    '?x=a:b',
    '#a:b',
    '',
    'x',
  ]
  for (const html of places) for (const value of fine) t.same(problemsOf(html, value), [], `${html} ${value}`)
  for (const html of [
    '<p>{{u}}',
    '<a href="https://x/?to={{u}}">',
    '<a title="{{u}}">',
    '<a href="javascript:f({{u}})">',
    '<a href="#{{u}}">',
  ]) {
    t.same(problemsOf(html, 'javascript:x'), [], html)
  }
  t.end()
})
