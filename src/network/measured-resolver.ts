/** A resolver whose questions are counted and timed. The answers are those of the resolver behind it. */
import type { DnsAnswer, Resolver, ValidatingResolver } from './resolver.ts'

export interface DnsNotes {
  onAnswer(type: string, seconds: number): void
  /** `timeout`, `servfail`, `refused`, `bogus` or `other`. */
  onFailure(kind: string): void
}

export function createMeasuredResolver(resolver: Resolver, notes: DnsNotes): Resolver {
  const timed = timing(notes)
  return {
    mx: (name) => timed('MX', resolver.mx(name)),
    addresses: (name, family) => timed(family === 4 ? 'A' : 'AAAA', resolver.addresses(name, family)),
    txt: (name) => timed('TXT', resolver.txt(name)),
    cname: (name) => timed('CNAME', resolver.cname(name)),
    ptr: (name) => timed('PTR', resolver.ptr(name)),
  }
}

export function createMeasuredValidatingResolver(resolver: ValidatingResolver, notes: DnsNotes): ValidatingResolver {
  const timed = timing(notes)
  return { ...createMeasuredResolver(resolver, notes), tlsa: (name) => timed('TLSA', resolver.tlsa(name)) }
}

type Timed = <Item>(type: string, answer: Promise<DnsAnswer<Item>>) => Promise<DnsAnswer<Item>>

const MILLISECONDS_PER_SECOND = 1_000

function timing({ onAnswer, onFailure }: DnsNotes): Timed {
  return async (type, coming) => {
    const startedAt = performance.now()
    const answer = await coming
    onAnswer(type, (performance.now() - startedAt) / MILLISECONDS_PER_SECOND)
    if (answer.kind === 'no-answer') onFailure(failureKind(answer.reason, answer.isBogus === true))
    return answer
  }
}

/** The reasons are ours: the name that was asked for, a colon, and what went wrong. */
function failureKind(reason: string, isBogus: boolean): string {
  if (isBogus) return 'bogus'
  const cause = reason.slice(reason.lastIndexOf(': ') + 2)
  if (cause.endsWith('in time')) return 'timeout'
  return cause === 'SERVFAIL' || cause === 'REFUSED' ? cause.toLowerCase() : 'other'
}
