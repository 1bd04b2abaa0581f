/**
 * What no honest client sends, as parts for requests and mails: JSON that parsers disagree about, texts that others take
 * for code, and bytes that are no text.
 */
import type { RandomSource } from '../support/random-source.ts'

/** Stands in a value for JSON that JSON.stringify would not write. */
export class RawJson {
  readonly text: string
  constructor(text: string) {
    this.text = text
  }
}

export const BAD_TEXTS = [
  '',
  ' ',
  'a\0b',
  '\ud800',
  'x\udc00y',
  '\u202eevil\u202c',
  'e\u0301'.repeat(40),
  '\u{1f468}\u200d\u{1f469}\u200d\u{1f467}',
  '\ufeffbom',
  '\u2028\u2029',
  'a\r\nBcc: extra@good1.test',
  'a\nX-Evil: 1',
  'a\r\n\r\nbody',
  '=?utf-8?q?=0d=0aBcc:_extra@good1.test?=',
  '__proto__',
  'constructor',
  'toString',
  '{{__proto__}} {{constructor}} {{{x}}} {{',
  '{{name|{{name}}}}',
  '${7*7}',
  "'; drop table messages; --",
  '../../../../etc/passwd',
  '%00%2e%2e%2f',
  '$& $1 $`',
  'x'.repeat(1_000),
  'y'.repeat(70_000),
  '<a href="javascript:alert(1)">'.repeat(50),
  '<'.repeat(5_000),
  '9'.repeat(400),
  'NaN',
  'true',
  '-0',
  '2026-13-45T99:99:99Z',
  'one@good1.test, extra@good2.test',
  'Name <one@good1.test>, <extra@good2.test>',
  '"a b"@good1.test',
  'a@[127.0.0.1]',
  'a@good1.test\0',
  'a@good1.test\r\nRCPT TO:<extra@good2.test>',
  'user@good1(x)good2.test',
  'ａ@ｇｏｏｄ１.test',
  'a@xn--.test',
  `${'l'.repeat(65)}@good1.test`,
  `a@${'d.'.repeat(130)}test`,
  'a@@b',
  'unknown@nowhere.test',
  'data:text/html,<script>1</script>',
  'http://[::1',
  'https://127.0.0.1:1/\r\nX: y',
] as const

const BAD_JSON = [
  '-0',
  '1e400',
  '-1e400',
  '1e-400',
  '9007199254740993',
  '0.1e1',
  '-1',
  '3.5',
  '2147483648',
  '99999999999999999999999999',
  'null',
  'true',
  '[]',
  '{}',
  '[null]',
  '[[[[]]]]',
  `${'['.repeat(40)}${']'.repeat(40)}`,
  `${'{"a":'.repeat(5_000)}1${'}'.repeat(5_000)}`,
  '{"__proto__":{"polluted":"yes"}}',
  '{"constructor":{"prototype":{"polluted":"yes"}}}',
  '{"a":1,"a":2,"\\u0061":3}',
  '"\\ud800"',
  '"\\u0000"',
  'null,"to":"second@good3.test"',
  `[${'0,'.repeat(3_000)}0]`,
  // These are no JSON.
  '01',
  '+1',
  '.5',
  '1.',
  'NaN',
  'Infinity',
  "'x'",
  '"\u0001"',
  '"\\x41"',
  '[1,]',
  '{"a":1,}',
  'tru',
  '"unclosed',
  '/* x */1',
].map((text) => new RawJson(text))

export function badValue(random: RandomSource): unknown {
  const text = random.oneOf(BAD_TEXTS)
  switch (random.integer(6)) {
    case 0:
    case 1:
      return random.oneOf(BAD_JSON)
    case 2:
      return [text, random.oneOf(BAD_JSON)]
    case 3:
      return { [text]: random.oneOf(BAD_TEXTS) }
    default:
      return text
  }
}

/** A copy with one to three of its values replaced, left out, or joined by keys that nobody asked for. */
export function mutateValue(value: unknown, random: RandomSource): unknown {
  let mutated = structuredClone(value)
  for (let change = 0; change <= random.integer(3); change++) mutated = mutateOnce(mutated, random)
  return mutated
}

function mutateOnce(value: unknown, random: RandomSource): unknown {
  if (typeof value !== 'object' || value === null || value instanceof RawJson) return badValue(random)
  const holder = value as Record<string, unknown>
  const keys = Object.keys(holder)
  const key = keys.length === 0 || random.integer(8) === 0 ? random.oneOf(BAD_TEXTS) : random.oneOf(keys)
  if (random.integer(10) === 0) {
    delete holder[key]
    return holder
  }
  const isDeep = random.integer(4) > 0 && Object.hasOwn(holder, key)
  const changed = isDeep ? mutateOnce(holder[key], random) : badValue(random)
  // An own property also where the name is `__proto__`: writing to that would change every object of this process.
  Object.defineProperty(holder, key, { value: changed, enumerable: true, configurable: true, writable: true })
  return holder
}

export function writeJson(value: unknown): string {
  const raw: string[] = []
  const text = JSON.stringify(value, (_key, part: unknown) =>
    part instanceof RawJson ? `@raw${raw.push(part.text) - 1}@` : part,
  )
  return text.replace(/"@raw(\d+)@"/g, (_all, index) => raw[Number(index)] ?? '')
}

const BAD_BYTES = [
  '\0',
  '\xff',
  '\xc0\xaf',
  '\xed\xa0\x80',
  '\r',
  '\n',
  '\xef\xbb\xbf',
  '"',
  '\\',
  '}',
  '[',
  '\x7f',
  '=',
]

/** Bytes cut out, doubled, flipped or put in between. */
export function mutateBytes(bytes: Buffer, random: RandomSource): Buffer {
  const at = random.integer(bytes.length + 1)
  const end = Math.min(bytes.length, at + random.integer(8))
  const [before, cut, behind] = [bytes.subarray(0, at), bytes.subarray(at, end), bytes.subarray(end)]
  switch (random.integer(6)) {
    case 0:
      return Buffer.concat([before, behind])
    case 1:
      return Buffer.concat([before, cut, cut, behind])
    case 2:
      return Buffer.from(before)
    case 3:
      return Buffer.from(bytes.toString('utf8'), 'utf16le')
    case 4:
      return Buffer.concat([before, cut.map((byte) => byte ^ (1 << random.integer(8))), behind])
    default:
      return Buffer.concat([before, Buffer.from(random.oneOf(BAD_BYTES), 'latin1'), behind])
  }
}
