/**
 * Likely causes of a record that is missing or wrong, each from what the DNS says: the mistakes that people make with
 * DNS consoles. Asks further questions only here, when something is wrong already; a question without an answer gives
 * no hint. Never throws.
 */
import { organizationalDomain } from '../../mail/organizational-domain.ts'
import type { DnsAnswer, Resolver } from '../../network/resolver.ts'
import { recordsIn } from './finding.ts'

/** A label that nobody publishes: what answers for it is a wildcard. */
const UNLIKELY_LABEL = 'sternpost-wildcard-probe'
/** Enough for real chains; also the end of a loop. */
const MOST_ALIASES = 8

type Ask = (name: string) => Promise<DnsAnswer<string>>

/** A record that was looked for, and how to know it at another name. */
interface WantedRecord {
  domain: string
  name: string
  ask: Ask
  isWanted: (text: string) => boolean
}

/** The DNS console added the domain to a name that ended in it already. */
export async function doubledNameHint({ domain, name, ask, isWanted }: WantedRecord): Promise<string | undefined> {
  const zones = new Set([domain, organizationalDomain(domain)])
  for (const zone of zones) {
    const doubled = `${name}.${zone}`
    if (recordsIn(await ask(doubled)).some(isWanted)) {
      const host = name.slice(0, -zone.length - 1)
      return `found at ${doubled}: the DNS provider adds the domain itself; enter the name as ${host}`
    }
  }
  return undefined
}

/** A record for `*` answers, because nothing is published at the name itself. */
export async function wildcardHint(name: string, answer: readonly string[], ask: Ask): Promise<string | undefined> {
  const parent = name.slice(name.indexOf('.') + 1)
  const probed = recordsIn(await ask(`${UNLIKELY_LABEL}.${parent}`))
  const isSame = answer.length > 0 && probed.toSorted().join('\n') === answer.toSorted().join('\n')
  return isSame ? `a wildcard answers for every name under ${parent}: publish the record at ${name} itself` : undefined
}

// Quotation marks and backslashes, which is how zone files write a text, and what is not ASCII: curly quotation marks,
// spaces that do not break.
const QUOTING = /["\\]|[^\x20-\x7e]/gu

/** The text without the quotation that was entered with it; undefined when it has none. */
export function unquoted(text: string): string | undefined {
  const plain = text.replace(QUOTING, '')
  return plain === text ? undefined : plain.trim()
}

export const QUOTED_HINT = 'the value was entered with quotation marks or other characters in it: enter it without them'

interface AliasChain {
  targets: string[]
  isLoop: boolean
  failure: string | undefined
}

export async function followAliases(name: string, lookups: Pick<Resolver, 'cname'>): Promise<AliasChain> {
  const targets: string[] = []
  let current = name.toLowerCase()
  while (targets.length < MOST_ALIASES) {
    const answer = await lookups.cname(current)
    const [next] = recordsIn(answer)
    const failure = answer.kind === 'no-answer' ? answer.reason : undefined
    if (next === undefined) return { targets, isLoop: false, failure }
    const isLoop = next === name || targets.includes(next)
    targets.push(next)
    if (isLoop) return { targets, isLoop, failure }
    current = next
  }
  return { targets, isLoop: false, failure: undefined }
}

interface AliasHintRequest {
  domain: string
  name: string
  target: string
  chain: AliasChain
  lookups: Resolver
}

export async function aliasHint(request: AliasHintRequest): Promise<string | undefined> {
  const { domain, name, target, chain, lookups } = request
  const [first] = chain.targets
  if (first !== undefined) {
    const isDoubled = [domain, organizationalDomain(domain)].some((zone) => first === `${target}.${zone}`)
    if (isDoubled) return `the DNS provider added the domain to the target: enter it as ${target}. with the dot`
    if (chain.isLoop) return `the alias leads back to itself: it must be a CNAME for ${target}`
    return (await wildcardHint(name, [first], lookups.cname)) ?? `it must be a CNAME for ${target}`
  }
  const isWanted = (text: string): boolean => text === target
  const doubled = await doubledNameHint({ domain, name, isWanted, ask: lookups.cname })
  return doubled ?? addressHint(name, target, lookups)
}

/** Addresses where a CNAME should be: a proxy of the DNS provider, or a wildcard. */
async function addressHint(name: string, target: string, lookups: Resolver): Promise<string | undefined> {
  const ask: Ask = (asked) => lookups.addresses(asked, 4)
  const addresses = recordsIn(await ask(name))
  if (addresses.length === 0) return undefined
  const wildcard = await wildcardHint(name, addresses, ask)
  return (
    wildcard ??
    `${name} has an address (${addresses[0]}) in place of a CNAME: switch the DNS provider's proxy off for it ` +
      `("DNS only") and make it a CNAME for ${target}`
  )
}
