/**
 * TLSA records: which certificate or key a host says it has (RFC 6698 §2.1, RFC 7671, RFC 7672 §3.1). Pure. `matches`
 * never throws; a certificate that cannot be read matches nothing.
 */
import { hash } from 'node:crypto'

/** A record of `_25._tcp.<host>`. */
export interface TlsaRecord {
  usage: number
  selector: number
  matching: number
  /** Hexadecimal, in lower case. */
  data: string
}

/** Certificate usages that mail servers may use (RFC 7672 §3.1.3). */
export const TRUST_ANCHOR = 2 // an authority in the chain of the host
export const END_ENTITY = 3 // the certificate of the host itself

const WHOLE_CERTIFICATE = 0
const PUBLIC_KEY = 1
/** Matching types: the hash, and how many hexadecimal digits it has. */
const HASHES: ReadonlyMap<number, { name: string; digits: number }> = new Map([
  [1, { name: 'sha256', digits: 64 }],
  [2, { name: 'sha512', digits: 128 }],
])
/** RFC 6698 §2.1: three numbers, then the data. */
const FIXED_BYTES = 3

/** Undefined for data that is no TLSA record. */
export function readTlsa(data: Buffer): TlsaRecord | undefined {
  const [usage, selector, matching] = data
  if (usage === undefined || selector === undefined || matching === undefined || data.length === FIXED_BYTES) {
    return undefined
  }
  return { usage, selector, matching, data: data.toString('hex', FIXED_BYTES) }
}

/** One of another kind counts as if it were not there (RFC 7672 §3.1). */
export function isUsable({ usage, selector, matching, data }: TlsaRecord): boolean {
  if (usage !== TRUST_ANCHOR && usage !== END_ENTITY) return false
  if (selector !== WHOLE_CERTIFICATE && selector !== PUBLIC_KEY) return false
  if (matching === 0) return data.length > 0
  return HASHES.get(matching)?.digits === data.length
}

/** Whether the certificate (DER) is the one that the record names. */
export function matches({ selector, matching, data }: TlsaRecord, certificate: Buffer): boolean {
  const selected = selector === WHOLE_CERTIFICATE ? certificate : publicKeyOf(certificate)
  if (selected === undefined) return false
  const algorithm = HASHES.get(matching)
  if (algorithm === undefined) return matching === 0 && selected.toString('hex') === data
  return hash(algorithm.name, selected, 'hex') === data
}

/** As people write it: `3 1 1 00112233…`. */
export function tlsaText({ usage, selector, matching, data }: TlsaRecord): string {
  return `${usage} ${selector} ${matching} ${data}`
}

/** DER tags (X.690 §8): SEQUENCE, and the explicit [0] in front of a version. */
const SEQUENCE = 0x30
const VERSION = 0xa0
/** Before the key: serial number, signature algorithm, issuer, validity, subject (RFC 5280 §4.1). */
const FIELDS_BEFORE_KEY = 5

/** The bytes of SubjectPublicKeyInfo as the certificate has them: written anew they may be others. */
function publicKeyOf(certificate: Buffer): Buffer | undefined {
  const whole = elementAt(certificate, 0)
  const signed = whole && elementAt(certificate, whole.contentStart)
  if (whole?.tag !== SEQUENCE || signed?.tag !== SEQUENCE) return undefined
  let element = elementAt(certificate, signed.contentStart)
  if (element?.tag === VERSION) element = elementAt(certificate, element.end)
  for (let field = 0; field < FIELDS_BEFORE_KEY && element !== undefined; field++) {
    element = elementAt(certificate, element.end)
  }
  return element?.tag === SEQUENCE ? certificate.subarray(element.start, element.end) : undefined
}

function elementAt(bytes: Buffer, start: number) {
  const tag = bytes[start]
  const first = bytes[start + 1]
  if (tag === undefined || first === undefined) return undefined
  // Below 128 it is the length, else the number of bytes that the length takes.
  const lengthBytes = first < 0x80 ? 0 : first - 0x80
  const contentStart = start + 2 + lengthBytes
  if (lengthBytes > 4 || contentStart > bytes.length) return undefined
  const length = lengthBytes === 0 ? first : bytes.readUIntBE(start + 2, lengthBytes)
  const end = contentStart + length
  return end > bytes.length ? undefined : { tag, start, contentStart, end }
}
