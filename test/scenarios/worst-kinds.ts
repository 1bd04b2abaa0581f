/**
 * The worst bodies that we know, for worst-bodies.test.ts: of each kind for each route that takes one, requests that
 * nothing is wrong with but what they cost, and mail. Nothing is made before it is asked for.
 */
import { describedRoutes } from '../support/response-check.ts'

export const isFull = process.env['TEST_SCALE'] === 'full'
export const MEBIBYTE = 1024 * 1024
/** Characters of the long texts. */
const LONG = (isFull ? 30 : 3) * MEBIBYTE

const keys = (count: number): object =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${index}`, 'v']))

/** By kind; `field` is one that the route knows. */
const JSON_KINDS: Record<string, (field: string) => string> = {
  'a long text': (field) => JSON.stringify({ [field]: 'x'.repeat(LONG) }),
  'quotes, escaped': (field) => `{"${field}":"${'\\"'.repeat(LONG / 2)}"}`,
  'a text in a list': (field) => JSON.stringify({ [field]: ['x'.repeat(LONG)] }),
  'a long key': () => JSON.stringify({ ['x'.repeat(LONG)]: 1 }),
  'open braces': (field) => JSON.stringify({ [field]: '{{'.repeat(2 * MEBIBYTE), variables: { a: 1 } }),
  'many keys': (field) => JSON.stringify({ [field]: keys(300_000) }),
  'many allowed keys': (field) => JSON.stringify({ [field]: keys(9_000), ...keys(9_000) }),
  'many entries': (field) => JSON.stringify({ [field]: Array.from({ length: 90_000 }, () => 1) }),
  deep: (field) => `{"${field}":${'['.repeat(LONG)}`,
  'a long number': (field) => `{"${field}":${'1'.repeat(LONG)}}`,
  'white space': () => `{${' '.repeat(LONG)}}`,
}
const CSV_KINDS: Record<string, () => string> = {
  'an open quote': () => `email,reason,scope\n${'"'.repeat(LONG)}`,
  'bad rows': () => `email,reason,scope\n${'x\n'.repeat(isFull ? 4 * MEBIBYTE : 100_000)}`,
  'one field': () => `email,reason,scope\n${'x'.repeat(LONG)}`,
}

/**
 * Routes for mail get each kind; the others, which refuse a large body unread, one kind after the other. The full size
 * has each kind in each field of each route.
 */
export function* worstBodies(): Generator<{ method: string; path: string; type: string; kind: string; body: string }> {
  const routes = describedRoutes()
  for (const [number, { method, path: pattern, body: wanted }] of routes.entries()) {
    if (wanted === null) continue
    const { contentType: type, schema, limit } = wanted
    const path = `/v1${pattern.replace(/:\w+/g, 'x')}`
    const fields = Object.keys((schema as { shape?: object }).shape ?? { html: 1, subject: 1, variables: 1 })
    const kinds = Object.entries(type === 'application/json' ? JSON_KINDS : CSV_KINDS)
    for (const [index, [kind, make]] of kinds.entries()) {
      if (!isFull && limit === null && index !== number % kinds.length) continue
      const tried = isFull ? fields : [fields[index % fields.length] ?? 'x']
      for (const field of tried) yield { method, path, type, kind: `${kind} in ${field}`, body: make(field) }
    }
  }
}

const TEXT_BYTES = 5 * MEBIBYTE
export const filled = (piece: string): string => piece.repeat(TEXT_BYTES / piece.length)
const numbered = (count: number, piece: (index: number) => string): string =>
  Array.from({ length: count }, (_, index) => piece(index)).join('')
const receivers = (fields: object): object[] =>
  Array.from({ length: 1_000 }, (_, index) => ({ to: `a${index}@dest.test`, ...fields }))

/** Requests that nothing is wrong with but what they cost, and neighbours of theirs that are refused. */
export const COSTLY_REQUESTS: [path: string, kind: string, make: () => object][] = [
  ['send', 'placeholders', () => ({ html: filled('{{a}}'), variables: { a: 'x' } })],
  ['send', 'placeholders that differ', () => ({ text: numbered(400_000, (n) => `{{a${n}|}}`), variables: {} })],
  ['send', 'allowed placeholders', () => ({ html: `${'x'.repeat(500)}{{a}}`.repeat(10_000), variables: { a: 1 } })],
  ['send', 'a long placeholder', () => ({ html: `{{${'x'.repeat(TEXT_BYTES - 4)}}}`, variables: {} })],
  ['send', 'URLs of values', () => ({ html: filled('<a href="{{a}}">'), variables: { a: 'x' } })],
  ['send', 'comments', () => ({ html: filled('<!--a-->') })],
  ['send', 'blocks in what is switched off', () => ({ html: filled('<div data-track="off"><p>') })],
  ['send', 'text of many bytes', () => ({ html: '€'.repeat(TEXT_BYTES / 3), text: 'ü'.repeat(TEXT_BYTES / 2) })],
  ['send', 'attachments', () => ({ text: 'x', attachments: [attachment('a'), attachment('b')] })],
  ['preview', 'allowed placeholders', () => ({ html: '{{a}}'.repeat(10_000), variables: { a: 'x' } })],
  ['preview', 'links', () => ({ html: filled('<a href="https://a.test/x">y</a>') })],
  ['preview', 'tags', () => ({ html: filled('<b>y</b>') })],
  ['preview', 'open tags', () => ({ html: filled('<') })],
  ['preview', 'attachments', () => ({ text: 'x', attachments: [attachment('a'), attachment('b')] })],
  [
    'batch',
    'URLs of values',
    () => ({ html: '<a href="{{a}}">'.repeat(10_000), recipients: receivers({ a: 'https://x.test/' }) }),
  ],
  [
    'batch',
    'URLs that differ',
    () => ({ html: numbered(660, (n) => `<a href="{{a${n}|}}">`), recipients: receivers({ a: 'x' }) }),
  ],
  [
    'preview',
    'short html that becomes long',
    () => ({ html: '{{a}}'.repeat(400), text: '{{a}}'.repeat(400), variables: { a: '\u2039\u00e9> '.repeat(500) } }),
  ],
  [
    'send',
    'a simulated open of html like tracked links',
    () => ({ to: 'opened@simulator.sternpost.test', html: filled('http://o/o/'), track: { opens: true } }),
  ],
  ['batch', 'missing values', () => ({ text: numbered(9_000, (n) => `{{a${n}}}`), recipients: receivers({}) })],
  ['batch', 'long values', () => ({ text: '{{a}}', recipients: receivers({ a: 'y'.repeat(30_000) }) })],
  ['batch', 'large html', () => ({ html: filled('x'), recipients: receivers({}) })],
]

export function attachment(name: string): object {
  return { name: `${name}.bin`, content: 'QUFB'.repeat(10 * 1024 * 341) }
}

/** Behind From and To; submitted mail may have 40 MiB. */
export const MAIL_KINDS: Record<string, () => string> = {
  'many fields': () => `${'X-A: b\r\n'.repeat(isFull ? 2 * MEBIBYTE : 200_000)}\r\n.`,
  'one long field': () => `X-A: ${'b '.repeat(LONG / 2)}\r\n\r\n.`,
  'many parts': () => `${MULTIPART}\r\n\r\n${'--b\r\n\r\n'.repeat(LONG / 8)}--b--\r\n`,
  'nested parts': () =>
    Array.from(
      { length: 20_000 },
      (_, index) => `Content-Type: multipart/mixed; boundary=b${index}\r\n\r\n--b${index}\r\n`,
    ).join(''),
  'a long boundary': () =>
    `X-Track: opens,clicks\r\n${MULTIPART}\r\n\r\n--b\r\nContent-Type: multipart/mixed; ` +
    `boundary="ab${'-'.repeat(60_000)}"\r\n\r\n${'-'.repeat(2 * MEBIBYTE)}\r\n--b--\r\n`,
  'a long field with folds': () => `X-A: b\r\n${` ${'a'.repeat(996)}\r\n`.repeat(250)}\r\n.`,
  'many senders': () => `${'Sender: shop@sandbox.test\r\n'.repeat(9_000)}\r\n.`,
  'escapes of html': () =>
    `Content-Type: text/html\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n` +
    `${'=3D'.repeat(24)}=\r\n`.repeat(LONG / 78),
  'links of html': () =>
    `Content-Type: text/html\r\n\r\n${'<a href="https://acme.test/x">x</a>\r\n'.repeat(LONG / 40)}`,
  'open tags': () =>
    `Content-Type: text/html\r\n\r\n${'<b '
      .repeat(300)
      .concat('\r\n')
      .repeat(LONG / 900)}`,
  'comments of html': () => `Content-Type: text/html\r\n\r\n${'<!--a-->\r\n'.repeat(LONG / 10)}`,
  'fields that are cut out': () => `${'Bcc: a@b.test\r\n'.repeat(15_000)}\r\n.`,
  'white space': () => `\r\n${' \t'.repeat(LONG / 2)}\r\n`,
  'dots alone': () => `\r\n${'..\r\n'.repeat(LONG / 4)}`,
  'base64 of single characters': () =>
    `Content-Type: text/html\r\nContent-Transfer-Encoding: base64\r\n\r\n${'A\r\n'.repeat(LONG / 3)}`,
}
const MULTIPART = 'Content-Type: multipart/mixed; boundary=b'
