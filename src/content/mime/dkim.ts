/**
 * Signs messages with DKIM (content/README.md "Rendering and DKIM"). The same message, keys and time give the same
 * bytes. Rejects when a key cannot sign. RFC 6376 §3.4.2, §3.4.4, §3.5, §3.7, §4.2, §5.4.2, §8.15; RFC 8463 §3.
 */
import { createHash, createPrivateKey, hash, sign } from 'node:crypto'
import { promisify } from 'node:util'
import { toUnixSeconds } from '../../base/clock.ts'
import { foldBase64 } from './transfer-encoding.ts'

/** One key of a sending domain. */
export interface Signer {
  /** `d=`. */
  readonly domain: string
  /** `s=`. */
  readonly selector: string
  /** `a=`. */
  readonly algorithm: 'rsa-sha256' | 'ed25519-sha256'
  /** The signature of these bytes: the selected fields and the DKIM-Signature field in canonical form. */
  sign(input: Uint8Array): Promise<Buffer>
}

/**
 * Signed once more than they are present, so that none can be added behind the signature (RFC 6376 §8.15): these also
 * when they are not there at all,
 */
const ALWAYS_SIGNED = 'From To Cc Subject Date Message-ID Reply-To'.split(' ')
/** and these only when they are: a server on the way may have reason to add its own. */
const SIGNED_WHEN_PRESENT = (
  'Sender MIME-Version Content-Type Content-Transfer-Encoding List-Unsubscribe List-Unsubscribe-Post Feedback-ID ' +
  'CFBL-Address CFBL-Feedback-ID'
).split(' ')

const SIGNED_FIELDS = [...ALWAYS_SIGNED, ...SIGNED_WHEN_PRESENT].map((name, index) => ({
  name,
  lowerCase: name.toLowerCase(),
  isAlways: index < ALWAYS_SIGNED.length,
}))
const SIGNED_NAMES = new Set(SIGNED_FIELDS.map(({ lowerCase }) => lowerCase))

// White space that is not a single space already: a fold, a tab, two spaces.
const CHANGED_SPACE = /\r\n|\t| {2}/
// Behind the line end of a fold there is white space.
const WHITE_SPACE = /(?:[ \t]|\r\n)+/g

/** Longer bodies have memory of their own. */
const SCRATCH_BYTES = 256 * 1024
/** Canonical bodies are written here, and forgotten when they are hashed. */
const scratch = Buffer.allocUnsafe(SCRATCH_BYTES)

const MOST_LINE_CHARACTERS = 76
const LINE_END = '\r\n'
/** The first line shares its place with the tab and `b=`. */
const SIGNATURE_LINE = { characters: MOST_LINE_CHARACTERS - 4, end: '\r\n\t' }
const SPACE = 0x20
const TAB = 0x09
const CR = 0x0d
const LF = 0x0a

const signOnThreadPool = promisify(sign)

/** `privateKeyPem` is PKCS#8 of an RSA or Ed25519 key; its kind is the algorithm. `domain` is in A-labels. */
export function createSigner({
  domain,
  selector,
  privateKeyPem,
}: Pick<Signer, 'domain' | 'selector'> & { privateKeyPem: string }): Signer {
  const key = createPrivateKey(privateKeyPem)
  switch (key.asymmetricKeyType) {
    case 'rsa':
      return { domain, selector, algorithm: 'rsa-sha256', sign: (input) => signOnThreadPool('sha256', input, key) }
    case 'ed25519':
      return {
        domain,
        selector,
        algorithm: 'ed25519-sha256',
        // RFC 8463 §3: what is signed is the SHA-256 hash, with no further hash of its own choosing.
        sign: (input) => signOnThreadPool(null, hash('sha256', input, 'buffer'), key),
      }
    default:
      throw new Error(`the DKIM key of ${domain} must be an RSA or Ed25519 key`)
  }
}

/** A message as it was composed. */
export interface UnsignedMessage {
  /** The message stands from `start` to the end; what is in front of it is free. */
  buffer: Buffer
  start: number
  /** Behind the empty line. */
  bodyStart: number
  /**
   * Start and end, in the buffer, of each stretch of the body's white space that is no single space, in order; none is
   * at a line end. null: not known.
   */
  runs: readonly number[] | null
}

/** What stands in front of the message takes most signature fields: else all of it is copied. */
export const SIGNATURE_ROOM = 1_024

/**
 * The message with a DKIM-Signature of each signer in front, the first one's topmost. None signs another, so that each
 * stands for itself (RFC 6376 §4.2). `signedAt` is in Unix milliseconds. The free bytes in front are used up.
 */
export async function signMessage(
  { buffer, start, bodyStart, runs }: UnsignedMessage,
  signers: readonly Signer[],
  signedAt: number,
): Promise<Buffer> {
  if (signers.length === 0) throw new Error('the message has no signer')
  const selected = selectFields(buffer.toString('latin1', start, bodyStart - LINE_END.length))
  const bodyHash =
    runs === null
      ? relaxedHash(buffer.subarray(bodyStart))
      : hash('sha256', withoutRuns(buffer, bodyStart, runs), 'base64')
  const signatures = await Promise.all(
    signers.map(async (signer) => {
      const { algorithm, domain, selector } = signer
      const unsigned = signatureField(
        [`a=${algorithm}`, 'c=relaxed/relaxed', `d=${domain}`, `s=${selector}`, `t=${toUnixSeconds(signedAt)}`],
        selected.names,
        bodyHash,
      )
      const signature = await signer.sign(Buffer.from(selected.canonical + unsigned.canonical, 'latin1'))
      return `${unsigned.field}${foldBase64(signature.toString('base64'), SIGNATURE_LINE)}${LINE_END}`
    }),
  )
  const fields = signatures.join('')
  if (fields.length > start) return Buffer.concat([Buffer.from(fields, 'latin1'), buffer.subarray(start)])
  buffer.write(fields, start - fields.length, 'latin1')
  return buffer.subarray(start - fields.length)
}

/**
 * Out of a header block, each line with its CRLF: what stands in `h=`, and the fields in canonical form, in that order.
 */
function selectFields(header: string): { names: string[]; canonical: string } {
  const present = readSigned(header)
  const selected: ReturnType<typeof selectFields> = { names: [], canonical: '' }
  for (const { name, lowerCase, isAlways } of SIGNED_FIELDS) {
    const fields = present.get(lowerCase)
    if (fields === undefined && !isAlways) continue
    selected.names.push(name)
    if (fields === undefined) continue
    for (const _ of fields) selected.names.push(name)
    // Verifiers take the instances of a field from the bottom up.
    for (const field of fields.toReversed()) selected.canonical += relaxedField(lowerCase, field)
  }
  return selected
}

/** The values that are signed, by the lower-case names of their fields, each with its folds, without the last CRLF. */
function readSigned(header: string): Map<string, string[]> {
  const present = new Map<string, string[]>()
  for (let start = 0; start < header.length;) {
    let end = header.indexOf('\r\n', start)
    // A line end that white space follows is a fold.
    while (isWhiteSpace(header.charCodeAt(end + 2))) end = header.indexOf('\r\n', end + 2)
    const field = header.slice(start, end)
    const colon = field.indexOf(':')
    const name = field.slice(0, colon).trim().toLowerCase()
    if (SIGNED_NAMES.has(name)) {
      const value = field.slice(colon + 1)
      const known = present.get(name)
      if (known === undefined) present.set(name, [value])
      else known.push(value)
    }
    start = end + 2
  }
  return present
}

/** RFC 6376 §3.4.2: lower-case name, unfolded value with single spaces and none at its ends. */
function relaxedField(name: string, given: string): string {
  const value = CHANGED_SPACE.test(given) ? given.replace(WHITE_SPACE, ' ') : given
  const start = value.startsWith(' ') ? 1 : 0
  const end = value.endsWith(' ') ? -1 : undefined
  return `${name}:${value.slice(start, end)}\r\n`
}

/**
 * RFC 6376 §3.4.4: runs of white space become one space, white space at line ends and empty lines at the end of the
 * body are dropped; a body that is not empty ends with CRLF. A body that is canonical comes back as it is, not copied.
 */
export function relaxedBody(body: Buffer): Buffer {
  const end = endOfText(body)
  if (end === 0) return body.subarray(0, 0)
  const text = relaxedText(body, 0, end)
  const isSame = text.buffer === body.buffer && text.byteOffset === body.byteOffset
  return isSame && body.length === end + 2 && body[end] === CR ? body : Buffer.concat([text, Buffer.from(LINE_END)])
}

/** SHA-256 of that, in base64, of a body of any length: its canonical form is never there as a whole. */
function relaxedHash(body: Buffer): string {
  if (body.length <= SCRATCH_BYTES) return hash('sha256', relaxedBody(body), 'base64')
  const digest = createHash('sha256')
  const end = endOfText(body)
  for (let start = 0; start < end;) {
    const stop = endOfStretch(body, start + SCRATCH_BYTES, end)
    digest.update(relaxedText(body, start, stop))
    start = stop
  }
  return digest.update(end === 0 ? '' : LINE_END).digest('base64')
}

/** Between two bytes that are neither white space nor of a line end: what is in front depends on nothing behind. */
function endOfStretch(body: Buffer, from: number, end: number): number {
  for (let at = from; at < end; at++) if ((body[at - 1] ?? 0) > SPACE && (body[at] ?? 0) > SPACE) return at
  return end
}

/** A stretch of a body, copied only where it changes. */
function relaxedText(body: Buffer, start: number, end: number): Buffer {
  // What came before `copied` stands in the first `length` bytes of `canonical`.
  let canonical: Buffer | undefined
  let length = 0
  let copied = start
  for (let index = start; index < end; index++) {
    const byte = body[index] ?? 0
    // One comparison for nearly all bytes.
    if (byte > SPACE || (byte !== SPACE && byte !== TAB)) continue
    let next = index + 1
    if (byte === SPACE && (body[next] ?? 0) > SPACE) continue
    while (isWhiteSpace(body[next])) next++
    const isAtLineEnd = body[next] === CR && body[next + 1] === LF
    canonical ??= Buffer.allocUnsafe(end - start)
    length += body.copy(canonical, length, copied, index)
    if (!isAtLineEnd) canonical[length++] = SPACE
    copied = next
    index = next - 1
  }
  if (canonical === undefined) return body.subarray(start, end)
  length += body.copy(canonical, length, copied, end)
  return canonical.subarray(0, length)
}

/**
 * The same of what stands behind `bodyStart`, where the runs of white space are known: see `UnsignedMessage`. What is
 * returned is good until the next call.
 */
export function withoutRuns(bytes: Buffer, bodyStart: number, runs: readonly number[]): Buffer {
  const body = bytes.subarray(bodyStart)
  const end = endOfText(body)
  if (end === 0) return body.subarray(0, 0)
  if (runs.length === 0 && body.length === end + 2 && body[end] === CR) return body
  const most = end + LINE_END.length
  const canonical = most <= SCRATCH_BYTES ? scratch : Buffer.allocUnsafe(most)
  let length = 0
  let copied = 0
  for (let index = 0; index < runs.length; index += 2) {
    length += body.copy(canonical, length, copied, (runs[index] ?? 0) - bodyStart)
    canonical[length++] = SPACE
    copied = (runs[index + 1] ?? 0) - bodyStart
  }
  length += body.copy(canonical, length, copied, end)
  canonical[length++] = CR
  canonical[length++] = LF
  return canonical.subarray(0, length)
}

/** Behind the last byte that is neither white space nor of a line end. */
function endOfText(body: Buffer): number {
  let end = body.length
  for (;;) {
    if (isWhiteSpace(body[end - 1])) end -= 1
    else if (body[end - 1] === LF && body[end - 2] === CR) end -= 2
    else return end
  }
}

function isWhiteSpace(code: number | undefined): boolean {
  return code === SPACE || code === TAB
}

/** Up to and with `b=`: folded, and in canonical form. */
function signatureField(
  tags: readonly string[],
  names: readonly string[],
  bodyHash: string,
): { field: string; canonical: string } {
  let field = 'DKIM-Signature: v=1;'
  let canonical = 'dkim-signature:v=1;'
  let column = field.length
  const add = (word: string, separator: string): void => {
    const isFolded = column + separator.length + word.length > MOST_LINE_CHARACTERS
    field += (isFolded ? '\r\n\t' : separator) + word
    canonical += (isFolded ? ' ' : separator) + word
    column = (isFolded ? 1 : column + separator.length) + word.length
  }
  for (const tag of tags) add(`${tag};`, ' ')
  names.forEach((name, index) => {
    const end = index === names.length - 1 ? ';' : ':'
    add(index === 0 ? `h=${name}${end}` : `${name}${end}`, index === 0 ? ' ' : '')
  })
  add(`bh=${bodyHash};`, ' ')
  return { field: `${field}\r\n\tb=`, canonical: `${canonical} b=` }
}
