/**
 * The address grammar: accepted forms, each refusal with its sentence, the address corpora, and properties.
 */
import { existsSync, readFileSync } from 'node:fs'
import fc from 'fast-check'
import t from 'tap'
import { domainToAscii, MOST_ADDRESS_INPUT_CHARACTERS, parseAddress } from '../../src/mail/address.ts'

const PRODUCTION = { allowReservedNames: false }
const RELAXED = { allowReservedNames: true }
const CORPUS = new URL('../../../shared/corpora/addresses/addresses.jsonl', import.meta.url)

t.test('an address is taken as it will be sent: local part as given, domain as lower-case A-labels', async (t) => {
  const cases: [string, string | null, string][] = [
    ['ada@example.com', null, 'ada@example.com'],
    ['  Ada.Lovelace+x@EXAMPLE.Com ', null, 'Ada.Lovelace+x@example.com'],
    ['<ada@example.com>', null, 'ada@example.com'],
    ['Ada <ada@example.com>', 'Ada', 'ada@example.com'],
    ['Ada   B. Lovelace <ada@example.com>', 'Ada   B. Lovelace', 'ada@example.com'],
    ['"Lovelace, Ada" <ada@example.com>', 'Lovelace, Ada', 'ada@example.com'],
    ['"a \\"b\\" \\\\ <c@d>" <ada@example.com>', 'a "b" \\ <c@d>', 'ada@example.com'],
    ['"" <ada@example.com>', null, 'ada@example.com'],
    ['ada@example.com <ada@example.com>', null, 'ada@example.com'],
    ['Größe – 名前 <ada@example.com>', 'Größe – 名前', 'ada@example.com'],
    ['ada@Bücher.example.com', null, 'ada@xn--bcher-kva.example.com'],
    ['ada@bu\u0308cher.de', null, 'ada@xn--bcher-kva.de'],
    ['ada@xn--bcher-kva.de', null, 'ada@xn--bcher-kva.de'],
    ['jõgeva@example.com', null, 'jõgeva@example.com'],
    ['伊昭傑@郵件.商務', null, '伊昭傑@xn--5nqv22n.xn--lhr59c'],
    ["!#$%&'*+-/=?^_`{|}~@example.com", null, "!#$%&'*+-/=?^_`{|}~@example.com"],
    ['a@ab--cd.com', null, 'a@ab--cd.com'],
  ]
  for (const [text, name, address] of cases) {
    t.match(parseAddress(text, PRODUCTION), { ok: true, mailbox: { name, address } }, text)
  }
})

t.test('what is not exactly one plain address is refused and told why', async (t) => {
  const cases: [string, string][] = [
    ['', 'is empty'],
    ['   ', 'is empty'],
    ['ada', "'ada' has no '@'"],
    ['user@@example.com', "'user@@example.com' has two '@' signs"],
    ['a@b.com@c.com', 'two'],
    ['a＠example.com', 'looks like one'],
    ['a﹫example.com', 'looks like one'],
    ['b＠c@example.com', 'not allowed before'],
    ['a@b.com, c@d.com', 'has a comma'],
    ['Ada, B <ada@b.com>', "has ',' in the display name"],
    ['a@b.com <c@d.com>', "has '@' in the display name"],
    ['a@b.com <a@b.com> <c@d.com>', "has '@' in the display name"],
    ['a@b.com,c@d.com <a@b.com,c@d.com>', 'has a comma'],
    ['friends: a@b.com, c@d.com;', 'comma'],
    ['friends: a@b.com;', 'semicolon'],
    ['friends:a@b.com', 'not allowed before'],
    ['@relay.com:a@b.com', 'source route'],
    ['<@relay.com,@x.com:a@b.com>', 'source route'],
    ['user@good(x)evil.com', 'comment'],
    ['user(x)@good.com', 'comment'],
    ['Ada (home) <a@b.com>', "'('"],
    ['"foo@a> ORCPT=x"@b.com', 'quoted local part'],
    ['"ada"@b.com', 'quoted local part'],
    ['=?utf-8?q?ada=40c.com?=@b.com', 'encoded word'],
    ['Ada <=?x?B?YQ==?=@b.com>', 'encoded word'],
    ['"ada@b.com', 'quote that is not closed'],
    ['"ada" smith <a@b.com>', 'space'],
    ['a@[192.0.2.1]', 'IP address in place of a domain'],
    ['a@[IPv6:2001:db8::1]', 'IP address in place of a domain'],
    ['a@[nonsense]', 'square brackets'],
    ['a@localhost', 'without a dot'],
    ['a@192.0.2.1', 'ends in a number'],
    ['a@b.c-', 'no valid domain'],
    ['a@-b.com', 'no valid domain'],
    ['a@b..com', 'no valid domain'],
    ['a@b.com.', 'no valid domain'],
    ['a@exa_mple.com', 'no valid domain'],
    [`a@${'b'.repeat(64)}.com`, 'no valid domain'],
    ['a@ex\u00adample.com', 'would be changed'],
    ['a@ｅxample.com', 'would be changed'],
    ['a@example。com', 'would be changed'],
    ['a@xn--a.com', 'no valid domain'],
    ['a@xn--.com', 'no valid domain'],
    ['@example.com', "nothing before the '@'"],
    ['a@', "nothing after the '@'"],
    ['.a@b.com', 'dot at the wrong end'],
    ['a.@b.com', 'dot at the wrong end'],
    ['a..b@b.com', 'two dots'],
    ['a b@c.com', 'space'],
    ['a\\@c.com', 'not allowed before'],
    ['＜a@c.com', 'not allowed before'],
    ['a\u200bb@c.com', 'not allowed before'],
    ['a\u2028b@c.com', 'not allowed before'],
    ['r\ufffdn\ufffd@c.com', 'not sent in UTF-8'],
    [`${'a'.repeat(65)}@b.com`, '64 octets'],
    [`${'ä'.repeat(33)}@b.com`, '64 octets'],
    [`${'a'.repeat(64)}@${'b'.repeat(62)}.${'c'.repeat(62)}.${'d'.repeat(60)}.com`, 'too long: 255 octets'],
    ['a@b.com\r\nRCPT TO:<evil@x.com>', 'U+000D'],
    ['c@d.com>\r\nRCPT TO:<evil@x.com', 'U+000D'],
    ['c@d.com> <evil@x.com', 'in the display name'],
    ['a@b.com\u0000', 'U+0000'],
    ['Ada\u0085 <a@b.com>', 'U+0085'],
    ['Ada\ud800 <a@b.com>', 'unpaired surrogate'],
    ['Ada <a@b.com> x', 'brackets'],
    ['Ada <a@b.com', 'brackets'],
    ['a@b.com>', 'no valid domain'],
  ]
  for (const [text, problem] of cases) {
    const parsed = parseAddress(text, RELAXED)
    t.match(parsed.ok ? 'accepted' : parsed.problem, problem, shown(text))
  }
})

t.test('reserved names are refused where mail is real, but for the simulator', async (t) => {
  for (const name of ['a.test', 'b.example', 'c.invalid', 'd.localhost']) {
    t.match(parseAddress(`x@${name}`, PRODUCTION), { ok: false, refusal: 'policy', problem: 'reserved name' })
    t.equal(parseAddress(`x@${name}`, RELAXED).ok, true)
  }
  t.equal(parseAddress('hard+x@Simulator.Sternpost.test', PRODUCTION).ok, true)
  t.equal(parseAddress('x@other.sternpost.test', PRODUCTION).ok, false)
  t.equal(parseAddress('x@example.com', PRODUCTION).ok, true, 'example.com is an ordinary name')
})

t.test('a host name becomes A-labels only when nothing in it is mapped away', async (t) => {
  const cases: [string, string | undefined][] = [
    ['Example.COM', 'example.com'],
    ['localhost', 'localhost'],
    ['faß.de', 'xn--fa-hia.de'],
    ['BÜCHER.de', 'xn--bcher-kva.de'],
    ['', undefined],
    ['.', undefined],
    ['a..b', undefined],
    ['exam ple.com', undefined],
    ['a/b.com', undefined],
    ['ex%61mple.com', undefined],
    ['１２７.0.0.1', undefined],
    ['0x7f.１', undefined],
    ['a@b.com', undefined],
    ['x'.repeat(254), undefined],
  ]
  for (const [text, ascii] of cases) t.equal(domainToAscii(text), ascii, JSON.stringify(text.slice(0, 40)))
})

t.test('megabytes of hostile input are refused at once', async (t) => {
  const size = 2_000_000
  const hostile = ['a', ' ', '.', '"', '\\', '<', '(', '@', ',', 'ä', '"\\'].flatMap((piece) => [
    piece.repeat(size),
    `${piece.repeat(size)}@example.com`,
    `x@${piece.repeat(size)}`,
    piece.repeat(MOST_ADDRESS_INPUT_CHARACTERS / 2),
  ])
  const start = performance.now()
  for (const text of hostile) t.equal(parseAddress(text, PRODUCTION).ok, false)
  t.ok(performance.now() - start < 20_000, 'not in time that grows with its square')
})

t.test('published faults of address parsers cannot be reached', async (t) => {
  const cases: [string, string[]][] = [
    ['GHSA-mm7p-fcc7-pg87: a quoted local part is sent elsewhere', ['"a@evil.com x"@b.com', '"a@b.com"@c.com']],
    [
      'CVE-2025-14874: deep nesting ends the process',
      [`${'g:'.repeat(400)}a@b.com;`, `${'('.repeat(400)}a@b.com`, '<'.repeat(400)],
    ],
    [
      'GHSA-c7w3-x93f-qmm8: a command in the envelope',
      ['c@d.com>\r\nRCPT TO:<evil@x.com', '"foo@a> ORCPT=x"@b.com', 'a@b.com SIZE=1'],
    ],
    ['a comment glues two domains together', ['user@good(x)evil.com', 'user@good.com(@evil.com)']],
    [
      'one string names two recipients',
      ['a@b.com, evil@x.com', 'a@b.com;evil@x.com', 'a@b.com evil@x.com', 'x:a@b.com,evil@x.com;'],
    ],
  ]
  for (const [name, texts] of cases) {
    for (const text of texts) t.equal(parseAddress(text, RELAXED).ok, false, name)
  }
})

t.test('no input throws, and what is accepted has the promised shape', async (t) => {
  const alphabet = fc.constantFrom(...'ab.@<>"\\ ,;:()[]-äß＠\u00ad\u0000\n', 'xn--', 'example.com', '@x.de', '\ud800')
  const mixed = fc.array(alphabet, { maxLength: 20 }).map((parts) => parts.join(''))
  const input = fc.oneof(fc.string({ unit: 'binary' }), mixed)
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(input, (text) => {
        const parsed = parseAddress(text, RELAXED)
        if (!parsed.ok) return parsed.problem.length < 400
        const { address } = parsed.mailbox
        const at = address.indexOf('@')
        // One '@', nothing that has a meaning in a command or a header, and an ASCII domain with a dot.
        return (
          at === address.lastIndexOf('@') &&
          !/[\p{Cc} <>()[\]\\,;:"]/u.test(address) &&
          Buffer.byteLength(address) <= 254 &&
          /^[a-z0-9-]+(?:\.[a-z0-9-]+)+$/.test(parsed.domain) &&
          parsed.domain === address.slice(at + 1) &&
          parseAddress(address, RELAXED).ok
        )
      }),
      { numRuns: 2_000 },
    ),
  )
})

/** Where the corpora and we differ on RFC 5321 validity, and why. */
const WRITTEN_REASONS: Record<string, string> = {
  ' test@iana.org': 'surrounding spaces are trimmed (http/README.md "Addresses")',
}

/** A name for an assertion: some characters would break the test output's own lines. */
function shown(text: string): string {
  // Everything but printable ASCII.
  return JSON.stringify(text).replace(/[^ -~]/gu, (character) => `U+${character.codePointAt(0)?.toString(16) ?? ''}`)
}

interface CorpusLine {
  address: string
  category?: string
  diagnosis: string
}

function isCorpusLine(value: unknown): value is CorpusLine {
  return typeof value === 'object' && value !== null && 'address' in value && 'diagnosis' in value
}

const skipCorpus = existsSync(CORPUS) ? false : 'the corpora are not there'
t.test('the corpora agree on RFC 5321 validity', { skip: skipCorpus }, async (t) => {
  const text = readFileSync(CORPUS, 'utf8').trim()
  const lines = text
    .split('\n')
    .map((line): unknown => JSON.parse(line))
    .filter(isCorpusLine)
  const byPolicy = new Map<string, number>()
  let right = 0
  for (const { address, category, diagnosis } of lines) {
    const isValid =
      category === undefined
        ? /^(?:valid|rfc5321)/.test(diagnosis)
        : ['ISEMAIL_VALID_CATEGORY', 'ISEMAIL_DNSWARN', 'ISEMAIL_RFC5321'].includes(category)
    const parsed = parseAddress(address, RELAXED)
    const isOurs = parsed.ok || parsed.refusal === 'policy'
    if (!parsed.ok && parsed.refusal === 'policy') {
      const reason = parsed.problem.slice(parsed.problem.lastIndexOf("' ") + 2)
      byPolicy.set(reason, (byPolicy.get(reason) ?? 0) + 1)
    }
    if (isOurs === isValid) right++
    else t.ok(Object.hasOwn(WRITTEN_REASONS, address), `${shown(address)} is judged as in its corpus (${diagnosis})`)
  }
  t.ok(lines.length > 150, 'the corpora were read')
  t.comment(`RFC 5321 validity: ${right} of ${lines.length}; valid and refused by policy:`)
  for (const [reason, count] of byPolicy) t.comment(`  ${count} ${reason}`)
})
