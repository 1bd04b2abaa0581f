/**
 * DNS messages as bytes: one question out, one answer in (RFC 1035 §4, RFC 6891, RFC 4035 §3.2). `readAnswer` reads
 * every byte inside the message's own bounds and follows compression backwards alone; what is no well-formed message
 * gives undefined.
 */
import type { QuestionType } from './resolver.ts'

export const TYPES = { A: 1, CNAME: 5, SOA: 6, PTR: 12, MX: 15, TXT: 16, AAAA: 28, OPT: 41, TLSA: 52 } as const

export const RESPONSE_CODES = { NOERROR: 0, SERVFAIL: 2, NXDOMAIN: 3, REFUSED: 5 } as const

export interface Question {
  id: number
  /** Without trailing dot; each label of 1 to 63 characters of ASCII. */
  name: string
  type: QuestionType
  /** Asks for the records as they are, validated or not (RFC 4035 §3.2.2). */
  isCheckingDisabled: boolean
}

export interface ResourceRecord {
  /** As `readName` writes it. */
  name: string
  type: number
  ttlSeconds: number
  /** Where its data begin in the message: names in them may point to others. */
  start: number
  data: Buffer
}

export interface DnsMessage {
  bytes: Buffer
  id: number
  isTruncated: boolean
  /** AD: the resolver validated every record. */
  isAuthentic: boolean
  code: number
  question: { name: string; type: number } | undefined
  answers: ResourceRecord[]
  authorities: ResourceRecord[]
}

/** What fits through every network without fragments (the DNS flag day of 2020). */
const UDP_BYTES = 1_232
const HEADER_BYTES = 12
const INTERNET = 1
const FLAG_RECURSION_DESIRED = 0x0100
const FLAG_AUTHENTIC = 0x0020
const FLAG_CHECKING_DISABLED = 0x0010
const FLAG_RESPONSE = 0x8000
const FLAG_TRUNCATED = 0x0200
const CODE_BITS = 0x000f
/** Of the extended flags of an OPT record: DNSSEC records are welcome (RFC 3225). */
const FLAG_DNSSEC_OK = 0x8000
/** RFC 1035 §2.3.4. */
const MOST_NAME_BYTES = 255
/** Of one name: it has at most as many labels. */
const MOST_POINTERS = 128
/** The two high bits of a length say that it is a pointer. */
const POINTER_BITS = 0xc0

export function writeQuestion({ id, name, type, isCheckingDisabled }: Question): Buffer {
  const flags = FLAG_RECURSION_DESIRED | FLAG_AUTHENTIC | (isCheckingDisabled ? FLAG_CHECKING_DISABLED : 0)
  return Buffer.concat([
    numbers(id, flags, 1, 0, 0, 1), // one question, and one additional record
    writeName(name),
    numbers(TYPES[type], INTERNET),
    Buffer.alloc(1), // the root, as name of the additional record
    numbers(TYPES.OPT, UDP_BYTES, 0, FLAG_DNSSEC_OK, 0),
  ])
}

/** Each in two bytes. */
function numbers(...values: number[]): Buffer {
  const bytes = Buffer.alloc(2 * values.length)
  for (const [index, value] of values.entries()) bytes.writeUInt16BE(value, 2 * index)
  return bytes
}

function writeName(name: string): Buffer {
  const labels = name.split('.').map((label) => Buffer.from(`${String.fromCharCode(label.length)}${label}`, 'latin1'))
  return Buffer.concat([...labels, Buffer.alloc(1)])
}

/** Only whole answers of records are read: of a truncated one there may be nothing but the header and the question. */
export function readAnswer(message: Buffer): DnsMessage | undefined {
  if (message.length < HEADER_BYTES) return undefined
  const flags = message.readUInt16BE(2)
  if ((flags & FLAG_RESPONSE) === 0) return undefined
  const facts = {
    bytes: message,
    id: message.readUInt16BE(0),
    isTruncated: (flags & FLAG_TRUNCATED) !== 0,
    isAuthentic: (flags & FLAG_AUTHENTIC) !== 0,
    code: flags & CODE_BITS,
  }
  try {
    let at = HEADER_BYTES
    let question: DnsMessage['question']
    if (message.readUInt16BE(4) > 1) return undefined
    if (message.readUInt16BE(4) === 1) {
      const { name, end } = readName(message, at)
      question = { name, type: message.readUInt16BE(end) }
      at = end + 4
    }
    if (facts.isTruncated) return { ...facts, question, answers: [], authorities: [] }
    const answers = readRecords(message, at, message.readUInt16BE(6))
    const authorities = readRecords(message, answers.end, message.readUInt16BE(8))
    return { ...facts, question, answers: answers.records, authorities: authorities.records }
  } catch (thrown) {
    // Reading past the end of the message.
    if (thrown instanceof RangeError) return undefined
    throw thrown
  }
}

function readRecords(message: Buffer, start: number, count: number): { records: ResourceRecord[]; end: number } {
  const records: ResourceRecord[] = []
  let at = start
  for (let index = 0; index < count; index++) {
    const { name, end } = readName(message, at)
    const dataEnd = end + 10 + message.readUInt16BE(end + 8)
    if (dataEnd > message.length) throw new RangeError('a record ends behind its message')
    const ttl = message.readInt32BE(end + 4)
    if (message.readUInt16BE(end + 2) === INTERNET) {
      // RFC 2181 §8: with the highest bit set it is 0.
      const ttlSeconds = Math.max(ttl, 0)
      records.push({
        name,
        type: message.readUInt16BE(end),
        ttlSeconds,
        start: end + 10,
        data: message.subarray(end + 10, dataEnd),
      })
    }
    at = dataEnd
  }
  return { records, end: at }
}

/**
 * Lower case, without trailing dot, '' for the root. A byte that no host name has is written as `\DDD` (RFC 1035 §5.1),
 * so that no label can pass for two. Throws RangeError for a name that does not end.
 */
export function readName(message: Buffer, start: number): { name: string; end: number } {
  const labels: string[] = []
  let bytes = 0
  let at = start
  let end: number | undefined
  let pointers = 0
  for (let length = message.readUInt8(at); length !== 0; length = message.readUInt8(at)) {
    if ((length & POINTER_BITS) === POINTER_BITS) {
      const target = message.readUInt16BE(at) & ~(POINTER_BITS << 8)
      end ??= at + 2
      // Backwards alone, so there is no circle.
      if (target >= at || ++pointers > MOST_POINTERS) throw new RangeError('a pointer does not lead back')
      at = target
      continue
    }
    bytes += length + 1
    if ((length & POINTER_BITS) !== 0 || bytes >= MOST_NAME_BYTES || at + 1 + length > message.length) {
      throw new RangeError('a name is too long')
    }
    const label = message.toString('latin1', at + 1, at + 1 + length)
    // All but letters, digits, hyphens and underscores.
    labels.push(label.replace(/[^A-Za-z0-9_-]/g, (byte) => `\\${String(byte.charCodeAt(0)).padStart(3, '0')}`))
    at += length + 1
  }
  return { name: labels.join('.').toLowerCase(), end: end ?? at + 1 }
}
