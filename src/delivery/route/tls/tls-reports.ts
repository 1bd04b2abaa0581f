/**
 * Sends the daily TLS reports to the domains that ask for them (delivery/README.md "TLS reports"): each domain at a
 * time of its own, in the first four hours of the next day; a server that was stopped catches up until that day is
 * over. A destination that fails is tried again after 10 min, then after twice as long each time. Rejects only when the
 * store does.
 */
import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { DAY, HOUR, MINUTE, type Clock } from '../../../base/clock.ts'
import { errorText, ServiceError } from '../../../base/errors.ts'
import type { Logger } from '../../../base/logger.ts'
import { startOfUtcDay, utcDay } from '../../../base/utc-day.ts'
import type { Configuration } from '../../../config/load-configuration.ts'
import type { GuardedRequest } from '../../../network/guarded-request.ts'
import type { Resolver } from '../../../network/resolver.ts'
import type { Store } from '../../../store/store.ts'
import type { TlsResult } from '../../../store/records/tls-records.ts'
import {
  makeTlsReport,
  readReportDestinations,
  REPORT_TYPE,
  reportMail,
  reportSubject,
  type ReportDestination,
  type TlsReport,
} from './tls-report.ts'

/** Goes through the queue like any mail of this server. */
export interface ReportMail {
  from: string
  recipient: string
  subject: string
  raw: Buffer
  /** The same again is the same mail. */
  idempotencyKey: string
}

interface TlsReportsOptions {
  store: Pick<Store, 'tlsReportsDue' | 'tlsResults' | 'noteTlsReport'>
  resolver: Pick<Resolver, 'txt'>
  request: Pick<GuardedRequest, 'post'>
  /** Rejects with a ServiceError when the mail is not accepted. */
  sendMail: (mail: ReportMail) => Promise<void>
  settings: () => Configuration
  clock: Clock
  logger: Logger
}

export type TlsReports = ReturnType<typeof createTlsReports>

/** The last results of a day are stored a moment after it. */
const NOT_BEFORE = 5 * MINUTE
const SPREAD_OVER = 4 * HOUR
const FIRST_WAIT = 10 * MINUTE
const POST_TIMEOUT = MINUTE
const SENT_AT_ONCE = 10
const MOST_BEGUN = 20_000

/** A report of which not every destination has got its copy. */
type Begun = { done: Set<string>; tries: number; nextAt: number }

/** The results of one domain on one day, and who reports them. */
type DomainDay = { day: string; domain: string; from: string; results: TlsResult[] }

export function createTlsReports(options: TlsReportsOptions) {
  const { store, resolver, clock } = options
  const deliver = createReportDelivery(options)
  const begun = new LRUCache<string, Begun>({ max: MOST_BEGUN })
  let running: Promise<void> | undefined

  async function sendDay(day: string, from: string): Promise<void> {
    const now = clock.now()
    const end = startOfUtcDay(day) + DAY
    const domains = (await store.tlsReportsDue(day)).filter(
      (domain) =>
        now >= end + NOT_BEFORE + offsetOf(day, domain) && now >= (begun.get(`${day} ${domain}`)?.nextAt ?? 0),
    )
    if (domains.length === 0) return
    const results = Map.groupBy(await store.tlsResults(day), ({ domain }) => domain)
    for (let first = 0; first < domains.length; first += SENT_AT_ONCE) {
      const some = domains.slice(first, first + SENT_AT_ONCE)
      await Promise.all(some.map((domain) => sendOne({ day, domain, from, results: results.get(domain) ?? [] })))
    }
  }

  async function sendOne({ day, domain, from, results }: DomainDay): Promise<void> {
    const key = `${day} ${domain}`
    const state = begun.get(key) ?? { done: new Set(), tries: 0, nextAt: 0 }
    const answer = await resolver.txt(`_smtp._tls.${domain}`)
    if (answer.kind === 'no-answer') return later(key, state)
    const destinations = answer.kind === 'found' ? readReportDestinations(answer.records) : []
    if (destinations.length > 0 && results.length > 0) {
      const { hostname: submitter } = options.settings().server
      const report = makeTlsReport({ day, domain, submitter, contact: from }, results)
      const open = destinations.filter((destination) => !state.done.has(nameOf(destination)))
      const areDone = await Promise.all(open.map((destination) => deliver(destination, report, from)))
      for (const [index, destination] of open.entries())
        if (areDone[index] === true) state.done.add(nameOf(destination))
      if (areDone.includes(false)) return later(key, state)
    }
    begun.delete(key)
    await store.noteTlsReport(day, domain)
  }

  function later(key: string, state: Begun): void {
    const wait = Math.min(FIRST_WAIT * 2 ** state.tries, DAY)
    begun.set(key, { ...state, tries: state.tries + 1, nextAt: clock.now() + wait })
  }

  async function sendAll(): Promise<void> {
    const { from } = options.settings().server.delivery.tls_reports
    if (from === null) return
    for (const daysAgo of [2, 1]) await sendDay(utcDay(clock.now() - daysAgo * DAY), from)
  }

  return {
    sendDue(): Promise<void> {
      running ??= sendAll().finally(() => void (running = undefined))
      return running
    },
  }
}

type Problem = { reason: string; isTemporary: boolean }

function createReportDelivery({ request, sendMail, logger }: TlsReportsOptions) {
  async function post(url: string, { bytes }: TlsReport): Promise<Problem | null> {
    const headers = { 'content-type': REPORT_TYPE }
    const answer = await request.post({ url, headers, body: bytes, timeoutMilliseconds: POST_TIMEOUT })
    if (answer.kind === 'failed') return { reason: answer.reason, isTemporary: true }
    const isTaken = answer.status >= 200 && answer.status < 300
    return isTaken ? null : { reason: `the web server answered ${answer.status}`, isTemporary: true }
  }

  async function send(recipient: string, report: TlsReport, from: string): Promise<Problem | null> {
    try {
      const raw = reportMail(report, from, recipient)
      const idempotencyKey = `tls-report ${hash('sha256', `${report.id} ${recipient}`, 'hex')}`
      await sendMail({ from, recipient, subject: reportSubject(report), raw, idempotencyKey })
      return null
    } catch (thrown) {
      const isTemporary = !(thrown instanceof ServiceError) || thrown.code === 'unavailable'
      return { reason: errorText(thrown), isTemporary }
    }
  }

  /** Resolves with false when the destination is worth another try. Never rejects. */
  return async (destination: ReportDestination, report: TlsReport, from: string): Promise<boolean> => {
    const problem =
      destination.kind === 'https' ? await post(destination.url, report) : await send(destination.address, report, from)
    const facts = { domain: report.domain, report_id: report.id, destination: nameOf(destination) }
    if (problem === null) logger.info(facts, 'TLS report sent')
    else logger.warn({ ...facts, reason: problem.reason }, 'TLS report not sent')
    return problem === null || !problem.isTemporary
  }
}

function nameOf(destination: ReportDestination): string {
  return destination.kind === 'https' ? destination.url : `mailto:${destination.address}`
}

/** The same for every run, and another for each domain (RFC 8460 §4.1 wants reports spread over time). */
function offsetOf(day: string, domain: string): number {
  const share = Number.parseInt(hash('sha256', `${day} ${domain}`, 'hex').slice(0, 8), 16) / 2 ** 32
  return Math.floor(share * SPREAD_OVER)
}
