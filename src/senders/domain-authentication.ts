/**
 * What receivers reported of mail in the name of a sending domain, as the API shows it (http/README.md "DMARC and TLS
 * reports"): sources, days, TLS sessions, and the next step of its DMARC policy. All of it is what reports claim. Errors of
 * the store are passed on.
 */
import { type Clock } from '../base/clock.ts'
import { canonicalIp } from '../base/ip-address.ts'
import { dayAfter, utcDay } from '../base/utc-day.ts'
import { OTHER_SOURCES, TLS_SUCCESS } from '../mail/authentication/authentication-report.ts'
import type { DmarcFindings, SourceSums, TlsDay } from '../store/records/authentication-records.ts'
import type { DomainRecord } from '../store/records/sender-records.ts'
import type { Store } from '../store/store.ts'

interface AuthenticationViewParts {
  store: Pick<Store, 'dmarcFindings' | 'tlsDays'>
  clock: Clock
  /** Addresses that mail of this server leaves from. */
  ownAddresses: () => string[]
  /** Names of this server that receive mail. */
  ownNames: string[]
}

/** `isWhole`: TLS sessions with this server's own names belong to the answer, too. */
export interface AuthenticationQuery {
  /** UTC dates, both included. */
  from: string
  to: string
  isWhole: boolean
}

export type DomainAuthentication = Awaited<ReturnType<ReturnType<typeof createDomainAuthentication>>>

export function createDomainAuthentication({ store, clock, ownAddresses, ownNames }: AuthenticationViewParts) {
  return async (domain: DomainRecord, { from, to, isWhole }: AuthenticationQuery) => {
    const today = utcDay(clock.now())
    const names = [...new Set([domain.name, ...(isWhole ? ownNames : [])])]
    const [found, month, ...tls] = await Promise.all([
      store.dmarcFindings(domain.name, from, to),
      store.dmarcFindings(domain.name, dayAfter(today, -CLEAN_DAYS), today),
      ...names.map((name) => store.tlsDays(name, from, to)),
    ])
    const policy = policyOf(domain)
    return {
      domain: domain.name,
      from,
      to,
      policy,
      hint: policyHint(domain.name, policy, month),
      dmarc: dmarcView(found, ownAddresses()),
      tls: names.map((name, index) => tlsView(name, tls[index] ?? [])).filter(({ days }) => days.length > 0),
    }
  }
}

function dmarcView({ reports, reporters, days, sources }: DmarcFindings, ownAddresses: readonly string[]) {
  const known = new Set(ownAddresses.map((address) => canonicalIp(address)))
  const messages = sumOf(days.map((each) => each.messages))
  const passed = sumOf(days.map((each) => each.passed))
  return {
    reports,
    reporters,
    messages,
    passed,
    failed: messages - passed,
    sources: sources.map((source) => sourceView(source, known.has(source.ip))),
    days: days.map((each) => ({ ...each, failed: each.messages - each.passed })),
  }
}

function sourceView({ ip, messages, passed, quarantined, rejected, ...sums }: SourceSums, known: boolean) {
  return {
    /** null: of several, too many to be told apart. */
    ip: ip === OTHER_SOURCES ? null : ip,
    known,
    messages,
    passed,
    failed: messages - passed,
    dkim_passed: sums.dkimPassed,
    spf_passed: sums.spfPassed,
    quarantined,
    rejected,
    first_day: sums.firstDay,
    last_day: sums.lastDay,
  }
}

function tlsView(domain: string, rows: readonly TlsDay[]) {
  const countOf = (some: readonly TlsDay[], isWell: boolean): number =>
    sumOf(some.filter(({ result }) => (result === TLS_SUCCESS) === isWell).map(({ sessions }) => sessions))
  const failures = Map.groupBy(
    rows.filter(({ result }) => result !== TLS_SUCCESS),
    ({ result }) => result,
  )
  return {
    domain,
    successful: countOf(rows, true),
    failed: countOf(rows, false),
    failures: [...failures].map(([result, each]) => ({ result, sessions: countOf(each, false) })),
    days: [...Map.groupBy(rows, ({ day }) => day)].map(([day, each]) => ({
      day,
      successful: countOf(each, true),
      failed: countOf(each, false),
    })),
  }
}

// The policy in a DMARC record: the tag p (RFC 9989 §4.7).
const POLICY = /(?:^|;)\s*p\s*=\s*(none|quarantine|reject)\s*(?:;|$)/i

type Policy = 'none' | 'quarantine' | 'reject'

/** As the last check found it published; null: it found none. */
function policyOf({ checks }: DomainRecord): Policy | null {
  const check = checks.find(({ purpose, status }) => purpose === 'dmarc' && status === 'verified')
  const found = POLICY.exec(check?.found[0] ?? '')?.[1]?.toLowerCase()
  return found === 'none' || found === 'quarantine' || found === 'reject' ? found : null
}

const NEXT_POLICY: Readonly<Record<Policy, Policy | null>> = { none: 'quarantine', quarantine: 'reject', reject: null }
const CLEAN_DAYS = 30
/** Of them; on some days hardly anything is sent, and nobody reports. */
const FEWEST_REPORTED_DAYS = 20

/** A policy may become stricter when no message of the last 30 days would have been hit by it. */
function policyHint(domain: string, policy: Policy | null, { days }: DmarcFindings): string | null {
  const next = policy === null ? null : NEXT_POLICY[policy]
  const isClean = days.length >= FEWEST_REPORTED_DAYS && days.every(({ messages, passed }) => passed === messages)
  if (next === null || !isClean) return null
  return `${CLEAN_DAYS} days are clean: publish p=${next} in place of p=${policy} at _dmarc.${domain}`
}

function sumOf(numbers: readonly number[]): number {
  return numbers.reduce((sum, each) => sum + each, 0)
}
