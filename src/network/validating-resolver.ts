/**
 * DNS questions to a resolver on this machine that validates DNSSEC, whose AD bit is believed (network/README.md "Cache
 * and resolver"). A lookup ends after `timeoutMilliseconds * tries` at the latest. Never throws for an answer of the
 * DNS. RFC 1035 §4.2, RFC 4035 §4.6, RFC 5452 §9, RFC 6840 §5.8, RFC 7766.
 */
import { randomInt } from 'node:crypto'
import { createSocket } from 'node:dgram'
import { connect } from 'node:net'
import { SECOND } from '../base/clock.ts'
import { errorCode, errorText } from '../base/errors.ts'
import { canonicalIp } from '../base/ip-address.ts'
import {
  readAnswer,
  readName,
  RESPONSE_CODES,
  TYPES,
  writeQuestion,
  type DnsMessage,
  type Question,
  type ResourceRecord,
} from './dns-message.ts'
import { isDnsName, MOST_ALIASES, normaliseDnsName } from './dns-resolver.ts'
import {
  bestFirst,
  MOST_RECORDS,
  type AnswerFacts,
  type DnsAnswer,
  type QuestionType,
  type ValidatingResolver,
} from './resolver.ts'
import { readTlsa } from './tlsa.ts'

interface ValidatingResolverOptions {
  /** `IP` or `IP:port`, on loopback. */
  server: string
  /** For one try. */
  timeoutMilliseconds: number
  tries: number
}

type ReadRecord<Item> = (record: ResourceRecord, message: Buffer) => Item | undefined

const DNS_PORT = 53
const HIGHEST_ID = 0xffff
const SILENCE = 'the validating resolver did not answer in time'
const LENGTH_BYTES = 2
/** A preference, and at least the root. */
const SHORTEST_MX_BYTES = 3
/** Of one answer, whatever they are. */
const MOST_READ = 1_000
/** Of these no more are read than are handed out. */
const CUT_TYPES: ReadonlySet<QuestionType> = new Set(['A', 'AAAA', 'PTR'])
/** An answer without records, from a zone that does not say for how long. */
const DEFAULT_NEGATIVE_SECONDS = 60
/** RFC 1035 §3.3.13: after its two names an SOA has five numbers, of which the last is the negative TTL. */
const NEGATIVE_TTL_BYTES = 4

export function createValidatingResolver(options: ValidatingResolverOptions): ValidatingResolver {
  const { timeoutMilliseconds, tries } = options
  const server = readServer(options.server)

  /** `endsAt`: of the lookup, by `performance.now()`. */
  async function ask(asked: Omit<Question, 'id'>, endsAt: number): Promise<DnsMessage | string> {
    let reason = SILENCE
    // Timers may ring a little early: less than a millisecond is no time for another try.
    const timeLeft = (): number => Math.min(timeoutMilliseconds, Math.floor(endsAt - performance.now()))
    for (let left = tries; left > 0 && timeLeft() > 0; left--) {
      const question = { id: randomInt(HIGHEST_ID + 1), ...asked }
      let received = await askByUdp({ server, question, timeoutMilliseconds: timeLeft() })
      if (typeof received !== 'string' && received.isTruncated) {
        received = await askByTcp({ server, question, timeoutMilliseconds: Math.max(1, timeLeft()) })
      }
      if (typeof received !== 'string') return received
      reason = received
    }
    return reason
  }

  async function look<Item>(type: QuestionType, askedName: string, read: ReadRecord<Item>): Promise<DnsAnswer<Item>> {
    const name = normaliseDnsName(askedName)
    if (!isDnsName(name)) return { kind: 'no-name' }
    const endsAt = performance.now() + timeoutMilliseconds * tries
    const received = await ask({ name, type, isCheckingDisabled: false }, endsAt)
    const failure = (reason: string): DnsAnswer<Item> => ({ kind: 'no-answer', reason: `${type} ${name}: ${reason}` })
    if (typeof received === 'string') return failure(received)
    const { code } = received
    if (code === RESPONSE_CODES.NOERROR || code === RESPONSE_CODES.NXDOMAIN) {
      return itemsOf(received, { name, type, read }) ?? failure('too many aliases in a row')
    }
    if (code !== RESPONSE_CODES.SERVFAIL) return failure(code === RESPONSE_CODES.REFUSED ? 'REFUSED' : `code ${code}`)
    const unchecked = await ask({ name, type, isCheckingDisabled: true }, endsAt)
    const isThere =
      typeof unchecked !== 'string' &&
      (unchecked.code === RESPONSE_CODES.NOERROR || unchecked.code === RESPONSE_CODES.NXDOMAIN)
    if (!isThere) return failure('SERVFAIL')
    return { kind: 'no-answer', reason: `${type} ${name}: DNSSEC validation failed`, isBogus: true }
  }

  return {
    async mx(name) {
      const answer = await look('MX', name, ({ start, data }, message) => {
        const exchange = data.length < SHORTEST_MX_BYTES ? undefined : nameIn(message, start + 2)
        return exchange === undefined ? undefined : { priority: data.readUInt16BE(0), exchange }
      })
      return answer.kind === 'found' ? { ...answer, records: bestFirst(answer.records) } : answer
    },
    addresses: (name, family) =>
      family === 4 ? look('A', name, ({ data }) => ipv4Of(data)) : look('AAAA', name, ({ data }) => ipv6Of(data)),
    txt: (name) => look('TXT', name, ({ data }) => stringsOf(data)),
    cname: (name) => look('CNAME', name, ({ start }, message) => nameIn(message, start)),
    ptr: (name) => look('PTR', name, ({ start }, message) => nameIn(message, start)),
    tlsa: (name) => look('TLSA', name, ({ data }) => readTlsa(data)),
  }
}

interface Asked<Item> {
  name: string
  type: QuestionType
  read: ReadRecord<Item>
}

/** Undefined for a chain of aliases without end. Records of other names than the chain's are not looked at. */
function itemsOf<Item>(answer: DnsMessage, { name, type, read }: Asked<Item>): DnsAnswer<Item> | undefined {
  let canonicalName = name
  let ttlSeconds = Infinity
  for (let aliases = 0; type !== 'CNAME'; aliases++) {
    const alias = answer.answers.find((record) => record.type === TYPES.CNAME && record.name === canonicalName)
    const target = alias && nameIn(answer.bytes, alias.start)
    if (alias === undefined || target === undefined) break
    if (aliases === MOST_ALIASES) return undefined
    canonicalName = target
    ttlSeconds = Math.min(ttlSeconds, alias.ttlSeconds)
  }
  const records: Item[] = []
  for (const record of answer.answers.slice(0, MOST_READ)) {
    if (CUT_TYPES.has(type) && records.length === MOST_RECORDS) break
    if (record.type !== TYPES[type] || record.name !== canonicalName) continue
    const item = read(record, answer.bytes)
    if (item === undefined) continue
    records.push(item)
    ttlSeconds = Math.min(ttlSeconds, record.ttlSeconds)
  }
  const factsFor = (seconds: number): AnswerFacts => ({
    isSecure: answer.isAuthentic,
    ttlMilliseconds: seconds * SECOND,
    canonicalName,
  })
  if (records.length > 0) return { kind: 'found', records, facts: factsFor(ttlSeconds) }
  const facts = factsFor(Math.min(ttlSeconds, negativeSeconds(answer)))
  return { kind: answer.code === RESPONSE_CODES.NXDOMAIN ? 'no-name' : 'no-record', facts }
}

function negativeSeconds({ authorities }: DnsMessage): number {
  const zone = authorities.find(({ type }) => type === TYPES.SOA)
  if (zone === undefined || zone.data.length < NEGATIVE_TTL_BYTES) return DEFAULT_NEGATIVE_SECONDS
  return Math.min(zone.ttlSeconds, zone.data.readUInt32BE(zone.data.length - NEGATIVE_TTL_BYTES))
}

function nameIn(message: Buffer, start: number): string | undefined {
  try {
    return readName(message, start).name
  } catch (thrown) {
    if (thrown instanceof RangeError) return undefined
    throw thrown
  }
}

function ipv4Of(data: Buffer): string | undefined {
  return data.length === 4 ? data.join('.') : undefined
}

function ipv6Of(data: Buffer): string | undefined {
  // Eight groups of four hexadecimal digits.
  return data.length === 16 ? canonicalIp(data.toString('hex').replace(/(.{4})(?!$)/g, '$1:')) : undefined
}

/** Strings with a byte of length each (RFC 1035 §3.3.14), joined. */
function stringsOf(data: Buffer): string {
  const strings: Buffer[] = []
  for (let at = 0; at < data.length; at += 1 + (data[at] ?? 0)) {
    strings.push(data.subarray(at + 1, at + 1 + (data[at] ?? 0)))
  }
  return Buffer.concat(strings).toString('utf8')
}

function readServer(text: string): { address: string; port: number } {
  const plain = canonicalIp(text)
  if (plain !== undefined) return { address: plain, port: DNS_PORT }
  // An address, in brackets where it is one of IPv6, and a port.
  const match = /^\[?([^\]]+?)\]?:(\d+)$/.exec(text)
  return { address: match?.[1] ?? text, port: Number(match?.[2] ?? DNS_PORT) }
}

interface AskLimits {
  server: { address: string; port: number }
  question: Question
  timeoutMilliseconds: number
}

/**
 * One question to one server, from a socket of its own. It is connected, so the kernel drops what comes from elsewhere;
 * other ids and other questions are passed over. Resolves with the reason when no answer came; never rejects.
 */
function askByUdp({ server, question, timeoutMilliseconds }: AskLimits): Promise<DnsMessage | string> {
  return new Promise((resolve) => {
    const socket = createSocket(server.address.includes(':') ? 'udp6' : 'udp4')
    let isOver = false
    const end = (result: DnsMessage | string): void => {
      if (isOver) return
      isOver = true
      clearTimeout(timer)
      socket.close()
      resolve(result)
    }
    const timer = setTimeout(() => end(SILENCE), timeoutMilliseconds)
    socket.on('error', (error) => end(reasonOf(error)))
    socket.on('message', (message) => {
      const answer = answerTo(question, message)
      if (answer !== undefined) end(answer)
    })
    // No callback of `connect`, which is called for an error too: without one that is an event.
    socket.on('connect', () => {
      if (!isOver) socket.send(writeQuestion(question))
    })
    socket.connect(server.port, server.address)
  })
}

/** RFC 1035 §4.2.2: each message has its length in front. */
function askByTcp({ server, question, timeoutMilliseconds }: AskLimits): Promise<DnsMessage | string> {
  return new Promise((resolve) => {
    const socket = connect({ host: server.address, port: server.port })
    const chunks: Buffer[] = []
    let size = 0
    const end = (result: DnsMessage | string): void => {
      clearTimeout(timer)
      socket.destroy()
      resolve(result)
    }
    const timer = setTimeout(() => end(SILENCE), timeoutMilliseconds)
    socket.on('error', (error) => end(reasonOf(error)))
    socket.on('close', () => end('the validating resolver closed the connection'))
    socket.on('connect', () => {
      const bytes = writeQuestion(question)
      const length = Buffer.alloc(LENGTH_BYTES)
      length.writeUInt16BE(bytes.length)
      socket.write(Buffer.concat([length, bytes]))
    })
    socket.on('data', (chunk) => {
      chunks.push(chunk)
      size += chunk.length
      // One message was asked for, and its length has two bytes: more than that is not kept.
      if (size < LENGTH_BYTES) return
      const whole = Buffer.concat(chunks)
      const messageEnd = LENGTH_BYTES + whole.readUInt16BE(0)
      if (size < messageEnd) return
      const message = whole.subarray(LENGTH_BYTES, messageEnd)
      const answer = answerTo(question, message)
      const isWhole = answer !== undefined && !answer.isTruncated
      end(isWhole ? answer : 'the validating resolver gave no usable answer')
    })
  })
}

/** An answer without its question cannot be told from one to another question, and is no answer. */
function answerTo(question: Question, message: Buffer): DnsMessage | undefined {
  const answer = readAnswer(message)
  if (answer === undefined || answer.id !== question.id) return undefined
  const isAsked = answer.question?.name === question.name && answer.question.type === TYPES[question.type]
  return isAsked ? answer : undefined
}

function reasonOf(error: Error): string {
  return errorCode(error) === 'ECONNREFUSED' ? 'the validating resolver could not be reached' : errorText(error)
}
