/**
 * DKIM signatures, judged by verifiers that are not ours: mailauth here, dkimpy where it is installed.
 */
import { spawnSync } from 'node:child_process'
import { createHash, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { dkimVerify } from 'mailauth'
import t from 'tap'
import {
  createSigner,
  relaxedBody,
  SIGNATURE_ROOM,
  signMessage,
  type Signer,
  type UnsignedMessage,
} from '../../src/content/mime/dkim.ts'
import { missingPrograms, PYTHON } from '../support/programs.ts'

/** The last 32 bytes of an Ed25519 SubjectPublicKeyInfo are the key itself (RFC 8410 §4). */
const RAW_KEY_BYTES = 32

const rsaPair = generateKeyPairSync('rsa', { modulusLength: 2048 })
const ed25519Pair = generateKeyPairSync('ed25519')
const pemOf = (pair: { privateKey: KeyObject }): string =>
  pair.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
const spkiOf = (pair: { publicKey: KeyObject }): Buffer => pair.publicKey.export({ type: 'spki', format: 'der' })
const records: Record<string, string> = {
  's1._domainkey.acme.com': `v=DKIM1; k=rsa; p=${spkiOf(rsaPair).toString('base64')}`,
  'e1._domainkey.acme.com': `v=DKIM1; k=ed25519; p=${spkiOf(ed25519Pair).subarray(-RAW_KEY_BYTES).toString('base64')}`,
}
const rsaSigner = createSigner({ domain: 'acme.com', selector: 's1', privateKeyPem: pemOf(rsaPair) })
const ed25519Signer = createSigner({ domain: 'acme.com', selector: 'e1', privateKeyPem: pemOf(ed25519Pair) })
const SIGNED_AT = 1_795_219_200_999

const sign = (message: Buffer): Promise<Buffer> => signMessage(unsigned(message), [rsaSigner], SIGNED_AT)
const signTwice = (message: Buffer): Promise<Buffer> =>
  signMessage(unsigned(message), [rsaSigner, ed25519Signer], SIGNED_AT)

function unsigned(message: Buffer, room = 0): UnsignedMessage {
  const bodyStart = room + message.indexOf('\r\n\r\n') + '\r\n\r\n'.length
  const buffer = Buffer.alloc(room + message.length)
  message.copy(buffer, room)
  return { buffer, start: room, bodyStart, runs: null }
}

const HEADER = [
  'From: Acme <orders@acme.com>',
  'To: ada@example.net',
  'Subject: Order',
  'Date: Sat, 21 Nov 2026 00:00:00 +0000',
  'Message-ID: <token@acme.com>',
  'MIME-Version: 1.0',
  'Content-Type: text/plain; charset=utf-8',
]

function message(body: string, header: readonly string[] = HEADER): Buffer {
  return Buffer.from(`${header.join('\r\n')}\r\n\r\n${body}`)
}

async function verdict(bytes: Buffer): Promise<string> {
  const resolver = async (name: string): Promise<string[][]> => {
    const record = records[name]
    if (record !== undefined) return [[record]]
    throw Object.assign(new Error('no such name'), { code: 'ENOTFOUND' })
  }
  const { results } = await dkimVerify(bytes, { resolver })
  return results.map((result) => `${result.status.result} ${result.signingDomain ?? ''}`).join()
}

/** The tags of a DKIM-Signature field, without any white space. */
function tagsOf(field: string): Record<string, string> {
  return Object.fromEntries(
    field
      .slice('DKIM-Signature:'.length)
      .replace(/\s/g, '')
      .split(';')
      .map((tag) => {
        const equals = tag.indexOf('=')
        return [tag.slice(0, equals), tag.slice(equals + 1)]
      }),
  )
}

const BODIES: [string, string][] = [
  ['nothing', ''],
  ['one empty line', '\r\n'],
  ['only empty lines', '\r\n\r\n\r\n'],
  ['only white space', ' \t \r\n \r\n'],
  ['no line end at the end', 'text'],
  ['empty lines at the end', 'text\r\n\r\n\r\n'],
  ['white-space lines at the end', 'text\r\n \r\n\t\r\n'],
  ['empty lines in front', '\r\n\r\ntext\r\n'],
  ['trailing white space', 'text \t\r\nmore  \r\n'],
  ['white space inside', 'a  b\t\tc \t d\r\n\tindented\r\n  twice\r\n'],
  ['long lines', `${'x'.repeat(990)}\r\n${'word '.repeat(190)}\r\n`],
  ['dots', '.\r\n..\r\n.text\r\n\r\n.\r\n'],
  ['other bytes', 'gr\u00fc\u00dfe \u{1f600}\r\n'],
  ['something like a header', 'From: x@y.z\r\n\r\nbody\r\n'],
]

const HEADERS: [string, string[]][] = [
  ['folded fields', HEADER.map((field) => field.replace(' ', '\r\n  \t'))],
  ['white space around colons and values', HEADER.map((field) => field.replace(': ', ':  \t') + ' \t ')],
  ['no space behind colons', HEADER.map((field) => field.replace(': ', ':'))],
  ['names in capitals', HEADER.map((field) => field.replace(/^[^:]+/, (name) => name.toUpperCase()))],
  ['an empty subject', HEADER.map((field) => (field.startsWith('Subject') ? 'Subject:' : field))],
  ['another order', HEADER.toReversed()],
  ['an address in another script', HEADER.map((field) => field.replace('ada@', 'jõgeva@'))],
  [
    'all signed fields',
    [
      ...HEADER,
      'Reply-To: a@b.c',
      'Cc: c@d.e',
      'Content-Transfer-Encoding: 7bit',
      'Feedback-ID: 0:acme.com:bulk:sternpost1',
      'List-Unsubscribe: <https://x.y/u>',
      'List-Unsubscribe-Post: List-Unsubscribe=One-Click',
      'X-Other: not signed',
    ],
  ],
  ['two of a kind', [...HEADER, 'Reply-To: a@b.c', 'Reply-To: c@d.e']],
]

function allCases(): [string, Buffer][] {
  const cases = BODIES.map(([name, body]): [string, Buffer] => [`a body with ${name}`, message(body)])
  for (const [name, header] of HEADERS) cases.push([`a header with ${name}`, message('text\r\n', header)])
  return cases
}

t.test('mailauth accepts every signature', async (t) => {
  for (const [name, given] of allCases()) {
    t.equal(await verdict(await sign(given)), 'pass acme.com', name)
    t.equal(await verdict(await signTwice(given)), 'pass acme.com,pass acme.com', `${name}, signed with two keys`)
  }
})

t.test('the message follows its signature unchanged, and time is the only thing that may differ', async (t) => {
  const given = message('text\r\n')
  const signed = await sign(given)
  t.ok(signed.subarray(-given.length).equals(given))
  const field = signed.subarray(0, -given.length).toString()
  const tags = tagsOf(field)
  t.match(tags, { v: '1', a: 'rsa-sha256', c: 'relaxed/relaxed', d: 'acme.com', s: 's1', t: '1795219200' })
  t.notOk('l' in tags || 'x' in tags, 'neither a length nor an expiry')
  t.equal(
    tags['h'],
    'From:From:To:To:Cc:Subject:Subject:Date:Date:Message-ID:Message-ID:Reply-To:' +
      'MIME-Version:MIME-Version:Content-Type:Content-Type',
  )
  t.ok(
    field.split('\r\n').every((line) => line.length <= 78),
    'folded',
  )
  t.equal(field.endsWith('\r\n'), true)
})

t.test('free bytes in front of the message take the signatures, where there are enough of them', async (t) => {
  const given = message('text\r\n')
  for (const signers of [[rsaSigner], [rsaSigner, ed25519Signer]]) {
    const apart = await signMessage(unsigned(given), signers, SIGNED_AT)
    for (const room of [1, SIGNATURE_ROOM, 2 * SIGNATURE_ROOM]) {
      const before = unsigned(given, room)
      const signed = await signMessage(before, signers, SIGNED_AT)
      t.ok(signed.equals(apart), `${signers.length} signatures, ${room} bytes`)
      const isCopied = signed.buffer !== before.buffer.buffer
      if (room === 1) t.ok(isCopied, 'not enough of them')
      if (room >= signers.length * SIGNATURE_ROOM) t.notOk(isCopied, 'enough')
    }
  }
})

t.test('the RSA signature is the topmost of two, and neither signs the other', async (t) => {
  const given = message('text\r\n')
  const signed = await signTwice(given)
  const fields = signed
    .subarray(0, -given.length)
    .toString()
    .split(/(?=DKIM-Signature:)/)
  t.match(fields.map(tagsOf), [
    { a: 'rsa-sha256', s: 's1' },
    { a: 'ed25519-sha256', s: 'e1' },
  ])
  t.equal(fields.length, 2)
  t.ok(signed.equals(await signTwice(given)), 'the same bytes again')
  t.ok(
    fields.every((field) => field.split('\r\n').every((line) => line.length <= 78)),
    'folded',
  )
  const [rsa = '', ed25519 = ''] = fields
  for (const alone of [rsa, ed25519]) t.equal(await verdict(Buffer.from(`${alone}${given}`)), 'pass acme.com')
  t.equal(await verdict(Buffer.from(`${ed25519}${rsa}${given}`)), 'pass acme.com,pass acme.com', 'in any order')
  t.notMatch(await verdict(Buffer.from(signed.toString().replace('Order', 'Other'))), 'pass', 'both break')
})

t.test('a second or changed field, or a changed body, breaks the signature', async (t) => {
  const signed = (await sign(message('text\r\nmore\r\n', [...HEADER, 'Feedback-ID: x']))).toString()
  t.equal(await verdict(Buffer.from(signed)), 'pass acme.com')
  for (const name of ['From', 'To', 'Subject', 'Date', 'Message-ID']) {
    const added = `${name}: <evil@evil.com>\r\n`
    t.not(await verdict(Buffer.from(added + signed)), 'pass acme.com', `a second ${name} on top`)
    const below = Buffer.from(signed.replace('\r\n\r\n', `\r\n${added}\r\n`))
    t.not(await verdict(below), 'pass acme.com', `a second ${name} below`)
  }
  for (const [from, to] of [
    ['Subject: Order', 'Subject: Other'],
    ['text\r\n', 'test\r\n'],
    ['more', 'm ore'],
    ['charset=utf-8', 'charset=latin1'],
    ['Feedback-ID: x', 'Feedback-ID: y'],
    ['\r\nMIME-Version: 1.0', ''],
    ['t=1795219200', 't=1795219201'],
    ['more\r\n', 'more\r\nand more\r\n'],
  ] as const) {
    t.ok(signed.includes(from), from)
    const changed = Buffer.from(signed.replace(from, to))
    t.not(await verdict(changed), 'pass acme.com', `${JSON.stringify(from)} -> ${JSON.stringify(to)}`)
  }
  t.equal(await verdict(Buffer.from(`X-New: 1\r\n${signed}`)), 'pass acme.com', 'a relay may add its own field')
})

t.test("bodies are made canonical as the standard's examples show", async (t) => {
  const cases: [string, string][] = [
    // RFC 6376 §3.4.5, then the empty bodies of §3.4.4.
    [' C \r\nD \t E\r\n\r\n\r\n', ' C\r\nD E\r\n'],
    ['', ''],
    ['\r\n', ''],
    [' \r\n\t\r\n', ''],
    ['a', 'a\r\n'],
    ['a\r\n\r\nb', 'a\r\n\r\nb\r\n'],
  ]
  for (const [body, canonical] of cases) {
    t.equal(relaxedBody(Buffer.from(body)).toString(), canonical, JSON.stringify(body))
  }
})

t.test('a long body is hashed in stretches as it is as a whole, wherever its white space stands', async (t) => {
  const line = `${'x'.repeat(200)}  y\t z \r\n`
  const bodies = [
    line.repeat(6_000),
    ' '.repeat(300_000).concat('a'),
    `${'a'.repeat(262_143)} \t b\r\n`,
    `${'a'.repeat(262_144)}\r\n \r\nb${'\r\n'.repeat(1_000)}`,
    'a '.repeat(400_000),
    '\r\n'.repeat(200_000),
  ]
  for (const [index, body] of bodies.entries()) {
    const signed = (await sign(message(body))).toString('latin1')
    const expected = createHash('sha256')
      .update(relaxedBody(Buffer.from(body)))
      .digest('base64')
    t.equal(/bh=([^;]*);/.exec(signed.replace(/\s+/g, ''))?.[1], expected, `body ${index}`)
    t.equal(await verdict(Buffer.from(signed, 'latin1')), 'pass acme.com')
  }
})

t.test('a key or a message that cannot be signed is an error, never an unsigned message', async (t) => {
  const elliptic = pemOf(generateKeyPairSync('ec', { namedCurve: 'P-256' }))
  t.throws(
    () => createSigner({ domain: 'acme.com', selector: 's1', privateKeyPem: elliptic }),
    /acme\.com must be an RSA or Ed25519 key/,
  )
  t.throws(() => createSigner({ domain: 'acme.com', selector: 's1', privateKeyPem: 'nonsense' }))
  await t.rejects(signMessage(unsigned(message('text\r\n')), [], SIGNED_AT), /no signer/)
  const broken: Signer = { ...ed25519Signer, sign: () => Promise.reject(new Error('the key is broken')) }
  await t.rejects(signMessage(unsigned(message('text\r\n')), [rsaSigner, broken], SIGNED_AT), /the key is broken/)
})

/**
 * Verifies both signatures of each file named on the command line with the records given first; prints a line for each
 * file.
 */
const DKIMPY = `
import json, sys, dkim
records = json.loads(sys.argv[1])
def find(name, timeout=5):
    return records[name.decode().rstrip('.')].encode()
def verdict(message, index):
    try:
        return 'pass' if dkim.DKIM(message).verify(idx=index, dnsfunc=find) else 'fail'
    except dkim.DKIMException:
        return 'fail'
for name in sys.argv[2:]:
    with open(name, 'rb') as file:
        message = file.read()
        print(verdict(message, 0), verdict(message, 1))
`

const skip = missingPrograms({ 'python3:dkim': ['python3-dkim'], 'python3:nacl': ['python3-nacl'] })
t.test('dkimpy accepts every signature and refuses a changed one', { skip }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-dkim-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const cases = allCases()
  const files: string[] = []
  for (const [index, [, given]] of cases.entries()) {
    const signed = await signTwice(given)
    const forged = Buffer.concat([Buffer.from('Subject: evil\r\n'), signed])
    for (const bytes of [signed, forged]) {
      const file = join(folder, `${index}-${bytes === signed ? 'good' : 'bad'}.eml`)
      writeFileSync(file, bytes)
      files.push(file)
    }
  }
  const given = ['-c', DKIMPY, JSON.stringify(records), ...files]
  const run = spawnSync(PYTHON, given, { encoding: 'utf8', timeout: 180_000 })
  t.equal(run.status, 0, run.stderr)
  const lines = run.stdout.trim().split('\n')
  for (const [index, [name]] of cases.entries()) {
    t.strictSame(lines.slice(2 * index, 2 * index + 2), ['pass pass', 'fail fail'], name)
  }
})
