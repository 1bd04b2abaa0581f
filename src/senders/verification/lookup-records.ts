/**
 * DNS lookups of one domain check: every question is asked once. One still open at the end, or asked after it, has no
 * answer: the check then reports a temporary failure (http/README.md "Domains").
 */
import { setImmediate } from 'node:timers/promises'
import type { DNSResolver } from 'mailauth'
import { dkimVerify } from 'mailauth/lib/dkim/verify.js'
import { SECOND, type Clock } from '../../base/clock.ts'
import {
  withFront,
  type DnsAnswer,
  type Front,
  type QuestionType,
  type RecordTypes,
  type Resolver,
} from '../../network/resolver.ts'

/** Of a TXT record, also of one that another includes: what is longer counts as not there. */
export const MOST_TEXT_CHARACTERS = 8_192

export function createCheckLookups(resolver: Resolver, clock: Clock, mostMilliseconds: number) {
  const noAnswer: DnsAnswer<never> = { kind: 'no-answer', reason: `no answer within ${mostMilliseconds / SECOND} s` }
  const over = Promise.withResolvers<DnsAnswer<never>>()
  let isOver = false
  const end = (): void => {
    isOver = true
    cancelTimer()
    over.resolve(noAnswer)
  }
  const cancelTimer = clock.after(mostMilliseconds, end)
  const asked: { [Type in QuestionType]: Map<string, Promise<DnsAnswer<RecordTypes[Type]>>> } = {
    MX: new Map(),
    A: new Map(),
    AAAA: new Map(),
    TXT: new Map(),
    CNAME: new Map(),
    PTR: new Map(),
    TLSA: new Map(),
  }
  const once: Front = (type, name, ask) => {
    if (isOver) return Promise.resolve(noAnswer)
    const answers: Map<string, Promise<DnsAnswer<RecordTypes[typeof type]>>> = asked[type]
    const answer = answers.get(name) ?? Promise.race([ask(), over.promise])
    answers.set(name, answer)
    return answer
  }
  /** `end` ends the check: it gives its timer back. */
  return { ...withFront(resolver, once), end }
}

/**
 * Node's shapes and error codes, which mailauth reads. It takes some 20 ms for the longest text: others have their turn
 * before each.
 */
export function asMailauthResolver(lookups: Resolver): DNSResolver {
  return async (name, type) => {
    switch (type) {
      case 'TXT':
        return textsOf(await lookups.txt(name))
      case 'A':
        return recordsOf(await lookups.addresses(name, 4))
      case 'AAAA':
        return recordsOf(await lookups.addresses(name, 6))
      case 'MX':
        return (
          recordsOf(await lookups.mx(name))
            // mailauth reads `priority` and `exchange`, while its types want lists of strings: this is both.
            .map((record) => Object.assign([record.exchange], record))
        )
      case 'CNAME':
        return recordsOf(await lookups.cname(name))
      default:
        // PTR, of the discouraged `ptr` mechanism (RFC 7208 §5.5): no name, so it does not match.
        throw dnsError('ENOTFOUND', `${type} is not looked up`)
    }
  }
}

async function textsOf(answer: DnsAnswer<string>): Promise<string[][]> {
  await setImmediate()
  const short = recordsOf(answer).filter(({ length }) => length <= MOST_TEXT_CHARACTERS)
  if (short.length === 0) throw dnsError(CODES['no-record'], 'every record is too long')
  return short.map((text) => [text])
}

const CODES = { 'no-record': 'ENODATA', 'no-name': 'ENOTFOUND', 'no-answer': 'ETIMEOUT' }

function recordsOf<Item>(answer: DnsAnswer<Item>): Item[] {
  if (answer.kind === 'found') return answer.records
  throw dnsError(CODES[answer.kind], answer.kind === 'no-answer' ? answer.reason : answer.kind)
}

function dnsError(code: string, message: string): Error {
  return Object.assign(new Error(message), { code })
}

/** The verdict on the first DKIM signature of a mail (RFC 6376 §6, RFC 8601 §2.7.1); `none` when it has none. */
export async function verifySignature(mail: Buffer, resolver: Resolver) {
  const [first] = (await dkimVerify(mail, { resolver: asMailauthResolver(resolver) })).results
  const { signingDomain: domain = null, selector = null } = first ?? {}
  return { result: first?.status.result ?? 'none', domain, selector }
}
