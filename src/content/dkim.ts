/**
 * Signs messages with DKIM: rsa-sha256, relaxed/relaxed, no `l=`, no `x=`, `t=` the time of acceptance.
 *
 * From, To, Subject, Date and Message-ID stand in `h=` once more than in the message, so that a second one cannot be
 * added without breaking the signature. The key is parsed once; signing runs on the thread pool. The same message and
 * time give the same bytes. Rejects when the key cannot sign: a message without a signature is not sent.
 * RFC 6376 §3.4.2, §3.4.4, §3.5, §3.7, §5.4.2, §8.15.
 */
import { createHash, createPrivateKey, sign } from 'node:crypto'
import { promisify } from 'node:util'
import { toUnixSeconds } from '../base/clock.ts'

export interface Signer {
  readonly domain: string
  readonly selector: string
  /** The message with its DKIM-Signature in front. `signedAt` is in Unix milliseconds. */
  sign(message: Uint8Array, signedAt: number): Promise<Buffer>
}

export interface SignerOptions {
  /** The sending domain in A-labels: `d=`. */
  domain: string
  selector: string
  /** PKCS#8 PEM of an RSA key. */
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

export function createSigner(options: SignerOptions): Signer {
  const { domain, selector } = options
  const key = createPrivateKey(options.privateKeyPem)
  if (key.asymmetricKeyType !== 'rsa') throw new Error(`the DKIM key of ${domain} must be an RSA key`)
  return {
    domain,
    selector,
    async sign(message, signedAt) {
      const bytes = Buffer.from(message.buffer, message.byteOffset, message.byteLength)
      const headerEnd = bytes.indexOf('\r\n\r\n')
      if (headerEnd < 0) throw new Error('the message has no end of its header')
      const fields = readFields(bytes.toString('latin1', 0, headerEnd + 2))
      const selected = selectFields(fields)
      const bodyHash = createHash('sha256').update(relaxedBody(bytes.subarray(headerEnd + 4))).digest('base64')
      const unsigned = signatureField(
        ['v=1', 'a=rsa-sha256', 'c=relaxed/relaxed', `d=${domain}`, `s=${selector}`, `t=${toUnixSeconds(signedAt)}`],
        selected.names,
        bodyHash,
      )
      const input = selected.canonical + relaxedField(unsigned).slice(0, -2)
      const signature = await signOnThreadPool('sha256', Buffer.from(input, 'latin1'), key)
      return Buffer.concat([Buffer.from(`${unsigned}${foldBase64(signature.toString('base64'))}\r\n`, 'latin1'), bytes])
    },
  }
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
