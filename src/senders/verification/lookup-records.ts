/**
 * DNS lookups of one domain check: every question is asked once, and none is waited for beyond the end of the check.
 *
 * A question still open at the end, or asked after it, has no answer: the check then reports a temporary failure
 * (http/README.md "Domains"). `asMailauthResolver` shows the same lookups in the form that mailauth takes. Nothing here
 * throws for an answer of the DNS but that adapter, whose callers expect it.
 */
import type { DNSResolver } from 'mailauth'
import { SECOND, type Clock } from '../../base/clock.ts'
import type { DnsAnswer, MxRecord, Resolver } from '../../network/resolver.ts'

interface CheckLookups extends Resolver {
  /** Ends the check: gives its timer back. */
  end(): void
}

interface CheckLookupsOptions {
  resolver: Resolver
  clock: Clock
  mostMilliseconds: number
}

export function createCheckLookups({ resolver, clock, mostMilliseconds }: CheckLookupsOptions): CheckLookups {
  const noAnswer: DnsAnswer<never> = { kind: 'no-answer', reason: `no answer within ${mostMilliseconds / SECOND} s` }
  let isOver = false
  let end = (): void => {}
  const over = new Promise<DnsAnswer<never>>((resolve) => {
    const cancelTimer = clock.after(mostMilliseconds, () => end())
    end = () => {
      isOver = true
      cancelTimer()
      resolve(noAnswer)
    }
  })

  function once<Item>(ask: (name: string) => Promise<DnsAnswer<Item>>): (name: string) => Promise<DnsAnswer<Item>> {
    const answers = new Map<string, Promise<DnsAnswer<Item>>>()
    return (name) => {
      if (isOver) return Promise.resolve(noAnswer)
      const answer = answers.get(name) ?? Promise.race([ask(name), over])
      answers.set(name, answer)
      return answer
    }
  }

  const ipv4 = once((name) => resolver.addresses(name, 4))
  const ipv6 = once((name) => resolver.addresses(name, 6))
  return {
    mx: once((name) => resolver.mx(name)),
    txt: once((name) => resolver.txt(name)),
    cname: once((name) => resolver.cname(name)),
    ptr: once((name) => resolver.ptr(name)),
    addresses: (name, family) => (family === 4 ? ipv4(name) : ipv6(name)),
    end: () => end(),
  }
}

/** Node's shapes and error codes, which mailauth reads. */
export function asMailauthResolver(lookups: Resolver): DNSResolver {
  return async (name, type) => {
    switch (type) {
      case 'TXT':
        return recordsOf(await lookups.txt(name)).map((text) => [text])
      case 'A':
        return recordsOf(await lookups.addresses(name, 4))
      case 'AAAA':
        return recordsOf(await lookups.addresses(name, 6))
      case 'MX':
        return recordsOf(await lookups.mx(name)).map(mxForMailauth)
      case 'CNAME':
        return recordsOf(await lookups.cname(name))
      default:
        // PTR, of the discouraged `ptr` mechanism (RFC 7208 §5.5): no name, so it does not match.
        throw dnsError('ENOTFOUND', `${type} is not looked up`)
    }
  }
}

function recordsOf<Item>(answer: DnsAnswer<Item>): Item[] {
  switch (answer.kind) {
    case 'found':
      return answer.records
    case 'no-record':
      throw dnsError('ENODATA', 'no such record')
    case 'no-name':
      throw dnsError('ENOTFOUND', 'no such name')
    case 'no-answer':
      throw dnsError('ETIMEOUT', answer.reason)
  }
}

function dnsError(code: string, message: string): Error {
  return Object.assign(new Error(message), { code })
}

/** mailauth reads `priority` and `exchange`, while its types want lists of strings: this is both. */
function mxForMailauth(record: MxRecord): string[] & MxRecord {
  return Object.assign([record.exchange], record)
}
