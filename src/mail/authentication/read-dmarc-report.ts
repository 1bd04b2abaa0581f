/**
 * Reads the XML of a DMARC aggregate report: RFC 7489 Appendix C, RFC 9990, and the forms of large providers, which
 * differ in order, case and what they leave out. Linear, and bounded in depth, elements, records and text. A document
 * type or an entity declaration refuses the report, as does XML that ends too early; names of elements count without
 * their namespace. What is no address, number or domain is dropped. Never throws.
 */
import { Parser } from 'htmlparser2'
import { canonicalIp } from '../../base/ip-address.ts'
import { SECOND } from '../../base/clock.ts'
import { utcDay } from '../../base/utc-day.ts'
import {
  MOST_COUNTED,
  OTHER_SOURCES,
  plainText,
  refused,
  reportedDomain,
  type AuthenticationReading,
  type DmarcSource,
} from './authentication-report.ts'

const MOST_DEPTH = 20
const MOST_ELEMENTS = 600_000
const MOST_RECORDS = 10_000
const MOST_NAME_CHARACTERS = 64
const MOST_FIELD_CHARACTERS = 400
/** Of one report, and the names in From that they are told apart by. */
const MOST_SOURCES = 1_000
const MOST_NAMES = 50
/** Parsed at once: the rest of a refused report is not looked at. */
const CHUNK_BYTES = 16_384
/** 9999-12-31, in seconds: beyond it a time has no date. */
const LAST_SECOND = 253_402_300_799

const ROOT = '/feedback'
const RECORD = '/feedback/record'
/** Where the texts stand that count. */
const FIELDS: ReadonlySet<string> = new Set([
  '/feedback/report_metadata/org_name',
  '/feedback/report_metadata/report_id',
  '/feedback/report_metadata/date_range/begin',
  '/feedback/policy_published/domain',
  '/feedback/record/row/source_ip',
  '/feedback/record/row/count',
  '/feedback/record/row/policy_evaluated/disposition',
  '/feedback/record/row/policy_evaluated/dkim',
  '/feedback/record/row/policy_evaluated/spf',
  '/feedback/record/identifiers/header_from',
])

export function readDmarcReport(bytes: Uint8Array): AuthenticationReading {
  const document = createDocument()
  const parser = new Parser(document.handler, { xmlMode: true })
  const decoder = new TextDecoder()
  for (let at = 0; at < bytes.length && document.problem() === undefined; at += CHUNK_BYTES) {
    parser.write(decoder.decode(bytes.subarray(at, at + CHUNK_BYTES), { stream: true }))
  }
  const problem = document.problem()
  if (problem !== undefined) return refused(problem)
  return document.isWhole() ? reportOf(document) : refused('the XML of the report is cut, or is no DMARC report')
}

type Document = ReturnType<typeof createDocument>

/** What the parser tells, put down as far as it counts. */
function createDocument() {
  const facts = new Map<string, string>()
  const sources = createSources()
  let record = new Map<string, string>()
  /** The way to the element that is open: `/feedback`, `/feedback/record` … */
  const way: string[] = []
  let text = ''
  let elements = 0
  let records = 0
  let isWhole = false
  let problem: string | undefined

  function put(path: string): void {
    if (!FIELDS.has(path)) return
    const values = path.startsWith(RECORD) ? record : facts
    // Of a field that comes twice the first counts.
    if (!values.has(path)) values.set(path, text.trim())
  }

  return {
    sources,
    problem: () => problem,
    isWhole: () => isWhole,
    fact: (path: string): string => facts.get(`${ROOT}/${path}`) ?? '',
    handler: {
      onopentagname(name: string): void {
        if (problem !== undefined) return
        const local = name.slice(name.lastIndexOf(':') + 1).slice(0, MOST_NAME_CHARACTERS)
        way.push(`${way.at(-1) ?? ''}/${local.toLowerCase()}`)
        text = ''
        elements++
        if (way.length > MOST_DEPTH) problem = `the XML of the report is more than ${MOST_DEPTH} levels deep`
        if (elements > MOST_ELEMENTS) problem = `the report has more than ${MOST_ELEMENTS} elements`
        if (isWhole) problem = 'the XML of the report goes on behind its end'
      },
      ontext(part: string): void {
        if (text.length < MOST_FIELD_CHARACTERS) text += part.slice(0, MOST_FIELD_CHARACTERS - text.length)
      },
      onclosetag(): void {
        const path = way.pop()
        if (path === undefined || problem !== undefined) return
        put(path)
        text = ''
        if (path === ROOT) isWhole = true
        if (path !== RECORD) return
        sources.add(record)
        record = new Map()
        if (++records > MOST_RECORDS) problem = `the report has more than ${MOST_RECORDS} records`
      },
      onprocessinginstruction(name: string): void {
        if (name.startsWith('!')) problem = 'the XML of the report declares a document type or an entity'
      },
    },
  }
}

function reportOf({ fact, sources }: Document): AuthenticationReading {
  const reporter = plainText(fact('report_metadata/org_name'))
  const reportId = plainText(fact('report_metadata/report_id'))
  const begin = wholeNumber(fact('report_metadata/date_range/begin'))
  const policyDomain = reportedDomain(fact('policy_published/domain'))
  if (reporter === '' || reportId === '') return refused('the report does not name its reporter, or has no number')
  if (begin === undefined || begin > LAST_SECOND) return refused('the report does not say of which day it is')
  if (policyDomain === undefined) return refused('the report names no domain')
  const known = sources.of(policyDomain)
  if (known.length === 0) return refused(`no record of the report is about ${policyDomain}`)
  return { kind: 'dmarc', reporter, reportId, day: utcDay(begin * SECOND), sources: known }
}

/** Adds records up by the name in From and the address of the source. */
function createSources() {
  const added = new Map<string, DmarcSource>()
  const names = new Set<string>()

  function sourceFor(headerFrom: string, ip: string): DmarcSource {
    const isKnown = names.has(headerFrom) || names.size < MOST_NAMES
    const key = isKnown && (added.size < MOST_SOURCES || added.has(`${headerFrom} ${ip}`)) ? `${headerFrom} ${ip}` : ''
    const found = added.get(key)
    if (found !== undefined) return found
    const source = { ...EMPTY, ...(key === '' ? {} : { headerFrom, ip }) }
    if (key !== '') names.add(headerFrom)
    added.set(key, source)
    return source
  }

  return {
    add(record: ReadonlyMap<string, string>): void {
      const field = (path: string): string => record.get(`${RECORD}/${path}`) ?? ''
      const given = field('identifiers/header_from')
      const headerFrom = given === '' ? '' : reportedDomain(given)
      const ip = canonicalIp(field('row/source_ip'))
      const count = Math.min(wholeNumber(field('row/count')) ?? 0, MOST_COUNTED)
      if (ip === undefined || headerFrom === undefined || count === 0) return
      const evaluated = (path: string): string => field(`row/policy_evaluated/${path}`).toLowerCase()
      const isDkim = evaluated('dkim') === 'pass'
      const isSpf = evaluated('spf') === 'pass'
      const source = sourceFor(headerFrom, ip)
      source.messages += count
      if (isDkim) source.dkimPassed += count
      if (isSpf) source.spfPassed += count
      if (isDkim || isSpf) source.passed += count
      if (evaluated('disposition') === 'quarantine') source.quarantined += count
      if (evaluated('disposition') === 'reject') source.rejected += count
    },
    /** Those whose From is the domain or below it, the largest first; a record without a From is about the domain. */
    of(domain: string): DmarcSource[] {
      return [...added.values()]
        .map((source) => (source.headerFrom === '' ? { ...source, headerFrom: domain } : source))
        .filter(({ headerFrom }) => headerFrom === domain || headerFrom.endsWith(`.${domain}`))
        .toSorted((left, right) => right.messages - left.messages)
    },
  }
}

const EMPTY: Readonly<DmarcSource> = {
  headerFrom: '',
  ip: OTHER_SOURCES,
  messages: 0,
  dkimPassed: 0,
  spfPassed: 0,
  passed: 0,
  quarantined: 0,
  rejected: 0,
}

// At most 15 digits: exact as a number.
const WHOLE_NUMBER = /^\d{1,15}$/

function wholeNumber(text: string): number | undefined {
  return WHOLE_NUMBER.test(text) ? Number(text) : undefined
}
