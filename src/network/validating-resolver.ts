/**
 * DNS questions to a resolver on this machine that validates DNSSEC, whose AD bit is believed (network/README.md "Cache
 * and resolver").
 *
 * A lookup ends after `timeoutMilliseconds * tries` at the latest. Never throws for an answer of the DNS. RFC 1035 §4.2,
 * RFC 4035 §4.6, RFC 5452 §9, RFC 6840 §5.8, RFC 7766.
 */
import { randomInt } from 'node:crypto'
import { SECOND } from '../base/clock.ts'
import { unreachable } from '../base/errors.ts'
import { canonicalIp } from '../base/ip-address.ts'
import { askByTcp, askByUdp } from './ask-dns-server.ts'
import type { DnsReply } from './ask-dns-server.ts'
import { readName, RESPONSE_CODES, TYPES } from './dns-message.ts'
import type { DnsMessage, QuestionType, ResourceRecord } from './dns-message.ts'
import { isDnsName, MOST_ALIASES, normaliseDnsName } from './dns-resolver.ts'
import type { AnswerFacts, DnsAnswer, ValidatingResolver } from './resolver.ts'
import { readTlsa } from './tlsa.ts'

interface ValidatingResolverOptions {
  /** `IP` or `IP:port`, on loopback. */
  server: string
  /** For one try. */
  timeoutMilliseconds: number
  tries: number
}

type ReadRecord<Item> = (message: Buffer, record: ResourceRecord) => Item | undefined

const DNS_PORT = 53
const HIGHEST_ID = 0xffff
/** A preference, and at least the root. */
const SHORTEST_MX_BYTES = 3
/** Of one answer; what is beyond helps nobody. */
const MOST_RECORDS = 1_000
/** An answer without records, from a zone that does not say for how long. */
const DEFAULT_NEGATIVE_SECONDS = 60
/** RFC 1035 §3.3.13: after its two names an SOA has five numbers, of which the last is the negative TTL. */
const NEGATIVE_TTL_BYTES = 4

export function createValidatingResolver(options: ValidatingResolverOptions): ValidatingResolver {
  const { timeoutMilliseconds, tries } = options
  const server = readServer(options.server)

  async function ask(name: string, type: QuestionType, isCheckingDisabled: boolean): Promise<DnsReply | string> {
    let reason = 'the validating resolver did not answer in time'
    for (let left = tries; left > 0; left--) {
      const question = { id: randomInt(HIGHEST_ID + 1), name, type, isCheckingDisabled }
      const limits = { server, question, timeoutMilliseconds }
      let received = await askByUdp(limits)
      if (typeof received !== 'string' && received.answer.isTruncated) received = await askByTcp(limits)
      if (typeof received !== 'string') return received
      reason = received
    }
    return reason
  }

  async function look<Item>(type: QuestionType, askedName: string, read: ReadRecord<Item>): Promise<DnsAnswer<Item>> {
    const name = normaliseDnsName(askedName)
    if (!isDnsName(name)) return { kind: 'no-name' }
    const received = await ask(name, type, false)
    const failure = (reason: string): DnsAnswer<Item> => ({ kind: 'no-answer', reason: `${type} ${name}: ${reason}` })
    if (typeof received === 'string') return failure(received)
    const { code } = received.answer
    if (code === RESPONSE_CODES.NOERROR || code === RESPONSE_CODES.NXDOMAIN) {
      return itemsOf(received, { name, type, read }) ?? failure('too many aliases in a row')
    }
    if (code !== RESPONSE_CODES.SERVFAIL) return failure(code === RESPONSE_CODES.REFUSED ? 'REFUSED' : `code ${code}`)
    const unchecked = await ask(name, type, true)
    const isThere =
      typeof unchecked !== 'string' &&
      (unchecked.answer.code === RESPONSE_CODES.NOERROR || unchecked.answer.code === RESPONSE_CODES.NXDOMAIN)
    if (!isThere) return failure('SERVFAIL')
    return { kind: 'no-answer', reason: `${type} ${name}: DNSSEC validation failed`, isBogus: true }
  }

  return {
    mx: (name) =>
      look('MX', name, (message, { start, end }) => {
        const exchange = end - start < SHORTEST_MX_BYTES ? undefined : nameIn(message, start + 2)
        return exchange === undefined ? undefined : { priority: message.readUInt16BE(start), exchange }
      }),
    addresses: (name, family) =>
      look(family === 4 ? 'A' : 'AAAA', name, (message, { start, end }) =>
        addressOf(message.subarray(start, end), family),
      ),
    txt: (name) => look('TXT', name, (message, { start, end }) => stringsOf(message.subarray(start, end))),
    cname: (name) => look('CNAME', name, (message, { start }) => nameIn(message, start)),
    ptr: (name) => look('PTR', name, (message, { start }) => nameIn(message, start)),
    tlsa: (name) => look('TLSA', name, (message, { start, end }) => readTlsa(message.subarray(start, end))),
  }
}

interface Asked<Item> {
  name: string
  type: QuestionType
  read: ReadRecord<Item>
}

/** Undefined for a chain of aliases without end. Records of other names than the chain's are not looked at. */
function itemsOf<Item>({ message, answer }: DnsReply, { name, type, read }: Asked<Item>): DnsAnswer<Item> | undefined {
  let canonicalName = name
  let ttlSeconds = Infinity
  for (let aliases = 0; type !== 'CNAME'; aliases++) {
    const alias = answer.answers.find((record) => record.type === TYPES.CNAME && record.name === canonicalName)
    const target = alias && nameIn(message, alias.start)
    if (alias === undefined || target === undefined) break
    if (aliases === MOST_ALIASES) return undefined
    canonicalName = target
    ttlSeconds = Math.min(ttlSeconds, alias.ttlSeconds)
  }
  const records: Item[] = []
  for (const record of answer.answers.slice(0, MOST_RECORDS)) {
    if (record.type !== TYPES[type] || record.name !== canonicalName) continue
    const item = read(message, record)
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
  const facts = factsFor(Math.min(ttlSeconds, negativeSeconds(message, answer)))
  return { kind: answer.code === RESPONSE_CODES.NXDOMAIN ? 'no-name' : 'no-record', facts }
}

function negativeSeconds(message: Buffer, { authorities }: DnsMessage): number {
  const zone = authorities.find(({ type }) => type === TYPES.SOA)
  if (zone === undefined || zone.end - zone.start < NEGATIVE_TTL_BYTES) return DEFAULT_NEGATIVE_SECONDS
  return Math.min(zone.ttlSeconds, message.readUInt32BE(zone.end - NEGATIVE_TTL_BYTES))
}

function nameIn(message: Buffer, start: number): string | undefined {
  try {
    return readName(message, start).name
  } catch (thrown) {
    if (thrown instanceof RangeError) return undefined
    throw thrown
  }
}

function addressOf(data: Buffer, family: 4 | 6): string | undefined {
  switch (family) {
    case 4:
      return data.length === 4 ? data.join('.') : undefined
    case 6:
      // Eight groups of four hexadecimal digits.
      return data.length === 16 ? canonicalIp(data.toString('hex').replace(/(.{4})(?!$)/g, '$1:')) : undefined
    default:
      return unreachable(family)
  }
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
