/**
 * Signs messages with DKIM: relaxed/relaxed, no `l=`, no `x=`, `t=` the time of acceptance; rsa-sha256, and beside it
 * ed25519-sha256 where a domain has such a key.
 *
 * From, To, Subject, Date and Message-ID stand in `h=` once more than in the message, so that a second one cannot be
 * added without breaking the signature. A key is parsed once; signing runs on the thread pool. The same message, keys
 * and time give the same bytes. Rejects when a key cannot sign: a message without all its signatures is not sent.
 * RFC 6376 §3.4.2, §3.4.4, §3.5, §3.7, §4.2, §5.4.2, §8.15; RFC 8463 §3.
 */
import { createHash, createPrivateKey, sign } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import { promisify } from 'node:util'
import { toUnixSeconds } from '../base/clock.ts'

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

export interface SignerOptions {
  /** The sending domain in A-labels: `d=`. */
  domain: string
  selector: string
  /** PKCS#8 PEM of an RSA or Ed25519 key; its kind is the algorithm. */
  privateKeyPem: string
}

/** Signed once more than they are present (RFC 6376 §8.15). */
const OVERSIGNED_FIELDS = ['From', 'To', 'Subject', 'Date', 'Message-ID'] as const
/** Signed when present. */
const FURTHER_FIELDS = [
  'Reply-To', 'Cc', 'MIME-Version', 'Content-Type', 'Content-Transfer-Encoding', 'List-Unsubscribe',
  'List-Unsubscribe-Post', 'Feedback-ID', 'CFBL-Address', 'CFBL-Feedback-ID',
] as const

const MOST_LINE_CHARACTERS = 76
const SPACE = 0x20
const TAB = 0x09
const CR = 0x0d
const LF = 0x0a

const signOnThreadPool = promisify(sign)

export function createSigner({ domain, selector, privateKeyPem }: SignerOptions): Signer {
  const key = createPrivateKey(privateKeyPem)
  switch (key.asymmetricKeyType) {
    case 'rsa':
      return { domain, selector, algorithm: 'rsa-sha256', sign: (input) => signOnThreadPool('sha256', input, key) }
    case 'ed25519':
      return { domain, selector, algorithm: 'ed25519-sha256', sign: (input) => signHash(input, key) }
    default:
      throw new Error(`the DKIM key of ${domain} must be an RSA or Ed25519 key`)
  }
}

/** RFC 8463 §3: what Ed25519 signs is the SHA-256 hash, with no further hash of its own choosing. */
function signHash(input: Uint8Array, key: KeyObject): Promise<Buffer> {
  return signOnThreadPool(null, createHash('sha256').update(input).digest(), key)
}

/**
 * The message with a DKIM-Signature of each signer in front, the first one's topmost. None signs another, so that each
 * stands for itself (RFC 6376 §4.2). `signedAt` is in Unix milliseconds.
 */
export async function signMessage(message: Uint8Array, signers: readonly Signer[], signedAt: number): Promise<Buffer> {
  if (signers.length === 0) throw new Error('the message has no signer')
  const bytes = Buffer.from(message.buffer, message.byteOffset, message.byteLength)
  const headerEnd = bytes.indexOf('\r\n\r\n')
  if (headerEnd < 0) throw new Error('the message has no end of its header')
  const selected = selectFields(readFields(bytes.toString('latin1', 0, headerEnd + 2)))
  const bodyHash = createHash('sha256').update(relaxedBody(bytes.subarray(headerEnd + 4))).digest('base64')
  const signatures = signers.map(async (signer) => {
    const { algorithm, domain, selector } = signer
    const unsigned = signatureField(
      ['v=1', `a=${algorithm}`, 'c=relaxed/relaxed', `d=${domain}`, `s=${selector}`, `t=${toUnixSeconds(signedAt)}`],
      selected.names,
      bodyHash,
    )
    const input = selected.canonical + relaxedField(unsigned).slice(0, -2)
    const signature = await signer.sign(Buffer.from(input, 'latin1'))
    return Buffer.from(`${unsigned}${foldBase64(signature.toString('base64'))}\r\n`, 'latin1')
  })
  return Buffer.concat([...(await Promise.all(signatures)), bytes])
}

/** The raw fields of a header block, each with its folds, without the last CRLF. */
function readFields(header: string): string[] {
  // A line end that no white space follows ends a field.
  return header.split(/\r\n(?![ \t])/).filter((field) => field !== '')
}

interface SelectedFields {
  /** What stands in `h=`, in order. */
  names: string[]
  /** The fields in canonical form, in that order. */
  canonical: string
}

function selectFields(fields: readonly string[]): SelectedFields {
  const byName = new Map<string, string[]>()
  for (const field of fields) {
    const name = field.slice(0, field.indexOf(':')).trim().toLowerCase()
    byName.set(name, [...(byName.get(name) ?? []), field])
  }
  const selected: SelectedFields = { names: [], canonical: '' }
  const add = (name: string, more: number): void => {
    // Verifiers take the instances of a field from the bottom up.
    const present = (byName.get(name.toLowerCase()) ?? []).toReversed()
    for (let count = 0; count < present.length + more; count++) selected.names.push(name)
    for (const field of present) selected.canonical += relaxedField(field)
  }
  for (const name of OVERSIGNED_FIELDS) add(name, 1)
  for (const name of FURTHER_FIELDS) add(name, 0)
  return selected
}

/** RFC 6376 §3.4.2: lower-case name, unfolded value with single spaces and none at its ends. */
function relaxedField(field: string): string {
  const colon = field.indexOf(':')
  // Line ends of folds, then runs of white space.
  const value = field.slice(colon + 1).replace(/\r\n/g, '').replace(/[ \t]+/g, ' ')
  const start = value.startsWith(' ') ? 1 : 0
  const end = value.endsWith(' ') ? -1 : undefined
  return `${field.slice(0, colon).trim().toLowerCase()}:${value.slice(start, end)}\r\n`
}

/**
 * RFC 6376 §3.4.4: runs of white space become one space, white space at line ends and empty lines at the end of the
 * body are dropped; a body that is not empty ends with CRLF.
 */
export function relaxedBody(body: Uint8Array): Buffer {
  const canonical = Buffer.allocUnsafe(body.length + 2)
  let length = 0
  let openLines = 0
  let isSpaceOpen = false
  for (let index = 0; index < body.length; index++) {
    const byte = body[index] ?? 0
    if (byte === SPACE || byte === TAB) {
      isSpaceOpen = true
    } else if (byte === CR && body[index + 1] === LF) {
      isSpaceOpen = false
      openLines++
      index++
    } else {
      for (; openLines > 0; openLines--) {
        canonical[length++] = CR
        canonical[length++] = LF
      }
      if (isSpaceOpen) canonical[length++] = SPACE
      isSpaceOpen = false
      canonical[length++] = byte
    }
  }
  if (length > 0) {
    canonical[length++] = CR
    canonical[length++] = LF
  }
  return canonical.subarray(0, length)
}

/** The DKIM-Signature field up to and with `b=`, folded. */
function signatureField(tags: readonly string[], names: readonly string[], bodyHash: string): string {
  let field = 'DKIM-Signature:'
  let column = field.length
  const add = (word: string, separator: string): void => {
    const isFolded = column + separator.length + word.length > MOST_LINE_CHARACTERS
    field += (isFolded ? '\r\n\t' : separator) + word
    column = (isFolded ? 1 : column + separator.length) + word.length
  }
  for (const tag of tags) add(`${tag};`, ' ')
  names.forEach((name, index) => {
    const end = index === names.length - 1 ? ';' : ':'
    if (index === 0) add(`h=${name}${end}`, ' ')
    else add(`${name}${end}`, '')
  })
  add(`bh=${bodyHash};`, ' ')
  return `${field}\r\n\tb=`
}

function foldBase64(text: string): string {
  const lines: string[] = []
  // The first line shares its place with the tab and `b=`.
  for (let start = 0; start < text.length; start += MOST_LINE_CHARACTERS - 4) {
    lines.push(text.slice(start, start + MOST_LINE_CHARACTERS - 4))
  }
  return lines.join('\r\n\t')
}
