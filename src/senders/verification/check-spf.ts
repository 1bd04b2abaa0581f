/**
 * Does SPF, asked as a receiver asks it, pass for every IP that mail of the domain may leave from? RFC 7208, by way of
 * mailauth (senders/README.md "Checks of a domain").
 */
import { spf } from 'mailauth/lib/spf/index.js'
import type { Resolver } from '../../network/resolver.ts'
import type { DomainRecord } from '../../store/records/sender-records.ts'
import { hinted, recordsIn, textRecords, type RecordFinding } from './finding.ts'
import { asMailauthResolver, MOST_TEXT_CHARACTERS } from './lookup-records.ts'
import { doubledNameHint, QUOTED_HINT, unquoted } from './record-hints.ts'
import { spfRecordValue, type RecordFacts } from '../records/required-records.ts'

export interface SpfFacts extends RecordFacts {
  ips: string[]
}

interface Evaluation {
  ip: string
  result: string
  /** More DNS lookups than RFC 7208 §4.6.4 allows. */
  isOverLimit: boolean
}

const SPF_SENDER = 'x'
const SPF_START = 'v=spf1'

export async function checkSpf(domain: DomainRecord, lookups: Resolver, facts: SpfFacts): Promise<RecordFinding> {
  const name = domain.returnPath
  const answer = await lookups.txt(name)
  const found = textRecords(answer, SPF_START)
  // RFC 7208 §3.4 asks for 450 bytes at most.
  if (found.some((text) => text.length > MOST_TEXT_CHARACTERS)) {
    return { status: 'failed', found, error: `SPF of ${name} is longer than ${MOST_TEXT_CHARACTERS} characters` }
  }
  // One after the other: together they would take a hostile record's time for every IP at once.
  const evaluations: Evaluation[] = []
  for (const ip of facts.ips) evaluations.push(await evaluateSpf(ip, name, lookups, facts.hostname))
  const evaluated = evaluations.map(({ ip, result }) => ({ ip, result }))
  const wrong = evaluations.filter(({ result }) => result !== 'pass')
  if (evaluated.length === 0) return { status: 'failed', found, error: 'the pool has no IP', evaluated }
  if (wrong.length === 0) return { status: 'verified', found, evaluated }
  const error = `SPF of ${name}: ${wrong.map(({ ip, result }) => `${result} for ${ip}`).join(', ')}`
  const hasNoAnswer = wrong.some(({ result }) => result === 'temperror')
  if (hasNoAnswer) return { status: 'temporary_failure', found, error, evaluated }
  const texts = recordsIn(answer)
  const hint = found.length === 0 ? await missingHint(domain, texts, lookups) : wrongHint(name, found, wrong, facts)
  const explained = { error, evaluated, ...hinted(hint) }
  const isMissing = found.length === 0 && hint !== QUOTED_HINT
  return isMissing ? { status: 'missing', found, ...explained } : { status: 'failed', found: texts, ...explained }
}

/** As for a mail from `name`, by a host that greets with `hostname`. */
export async function evaluateSpf(ip: string, name: string, lookups: Resolver, hostname: string): Promise<Evaluation> {
  const sender = `${SPF_SENDER}@${name}`
  const resolver = asMailauthResolver(lookups)
  const outcome = await spf({ ip, sender, helo: hostname, mta: hostname, resolver, strict: true })
  const { result, comment } = outcome.status
  return { ip, result, isOverLimit: String(comment).includes('Too many DNS requests') }
}

async function missingHint(domain: DomainRecord, texts: string[], lookups: Resolver): Promise<string | undefined> {
  const isSpf = (text: string): boolean => text.trim().toLowerCase().startsWith(SPF_START)
  if (texts.some((text) => isSpf(unquoted(text) ?? ''))) return QUOTED_HINT
  return doubledNameHint({ domain: domain.name, name: domain.returnPath, isWanted: isSpf, ask: lookups.txt })
}

function wrongHint(name: string, found: string[], wrong: Evaluation[], facts: SpfFacts): string {
  const include = `include:${facts.targets.spf}`
  if (found.length > 1) {
    return `${found.length} SPF records at ${name}: receivers accept none then; keep one, with ${include}`
  }
  if (wrong.some(({ isOverLimit }) => isOverLimit)) {
    return `the record needs more than 10 DNS lookups, so receivers give up: use ${spfRecordValue(facts)} alone`
  }
  const isIncluded = found.some((text) => text.toLowerCase().includes(include.toLowerCase()))
  return isIncluded
    ? `${facts.targets.spf} does not list every IP, or a term before it refuses them`
    : `it must hold ${include}`
}
