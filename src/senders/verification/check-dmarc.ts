/**
 * Does one valid DMARC policy apply, the domain's or that of one above it, and is our mail aligned with it? RFC 9989,
 * by way of mailauth. And may its reports come to this server? RFC 7489 §7.1 (senders/README.md "Checks of a domain").
 */
import { dmarc } from 'mailauth/lib/dmarc/index.js'
import type { Resolver } from '../../network/resolver.ts'
import type { DomainRecord } from '../../store/records/sender-records.ts'
import { failed, missing, noAnswer, recordsIn, textRecords, verified, type RecordFinding } from './finding.ts'
import { asMailauthResolver } from './lookup-records.ts'
import { AUTHORISATION, authorisationSuffix, type RecordFacts } from '../records/required-records.ts'
import { doubledNameHint, QUOTED_HINT, unquoted, wildcardHint } from './record-hints.ts'

const DMARC_START = 'v=dmarc1'

export async function checkDmarc(domain: DomainRecord, lookups: Resolver): Promise<RecordFinding> {
  const name = `_dmarc.${domain.name}`
  const answer = await lookups.txt(name)
  if (answer.kind === 'no-answer') return noAnswer(answer.reason)
  const result = await dmarc({
    headerFrom: [domain.name],
    spfDomains: [domain.returnPath],
    dkimDomains: [{ domain: domain.name, aligned: domain.name }],
    resolver: asMailauthResolver(lookups),
  })
  const outcome = result === false ? 'none' : result.status.result
  const published = textRecords(answer, DMARC_START)
  if (outcome === 'pass') return verified([result === false ? '' : (result.rr ?? '')])
  if (outcome === 'temperror') return { ...noAnswer(`no answer for ${name}`), found: published }
  if (published.length === 0) return unpublished(domain.name, name, recordsIn(answer), lookups)
  return published.length > 1
    ? failed(published, `${published.length} records at ${name}`, 'keep one: with several, none applies')
    : failed(published, `the record at ${name} is not valid`, undefined)
}

/** A record of the domain, or one for all domains: what receivers ask before they send reports elsewhere. */
export async function checkReportAuthorisation(
  { name: domain }: DomainRecord,
  lookups: Resolver,
  facts: RecordFacts,
): Promise<RecordFinding> {
  const suffix = authorisationSuffix(facts)
  const name = `${domain}.${suffix}`
  const answer = await lookups.txt(name)
  if (answer.kind === 'no-answer') return noAnswer(answer.reason)
  const published = textRecords(answer, DMARC_START)
  if (published.length > 0) return verified(published)
  const hint = `the operator of this server publishes it; a record at *.${suffix} serves all domains`
  const found = recordsIn(answer)
  if (found.length === 0) return missing('TXT', name, hint)
  return failed(found, `no record at ${name} begins with ${AUTHORISATION}`, hint)
}

async function unpublished(domain: string, name: string, texts: string[], lookups: Resolver): Promise<RecordFinding> {
  const isDmarc = (text: string): boolean => text.trim().toLowerCase().startsWith(DMARC_START)
  if (texts.some((text) => isDmarc(unquoted(text) ?? ''))) {
    return failed(texts, `the record at ${name} is no DMARC policy`, QUOTED_HINT)
  }
  const wildcard = await wildcardHint(name, texts, lookups.txt)
  return missing(
    'TXT',
    name,
    wildcard ?? (await doubledNameHint({ domain, name, isWanted: isDmarc, ask: lookups.txt })),
  )
}
