/**
 * What DMARC and TLS reports say of our domains (inbound/README.md "DMARC and TLS reports"). A report counts once for a
 * domain; rows of a domain and day are bounded, whoever sends how many reports.
 */
import type { Database } from '../../engine/database.ts'
import { OTHER_SOURCES, type DmarcSource } from '../../../mail/authentication/authentication-report.ts'
import type { AuthenticationResult, DmarcDay, SourceSums, TlsDay } from '../../records/authentication-records.ts'
import { additionsOf } from '../ips/ip-counters.ts'
import { oneColumn } from '../tools/statements.ts'
import type { SomeVerbs } from '../tools/verb-types.ts'

/** Of a domain and day; the largest receivers of the world send a few each. */
const MOST_REPORTS = 500
const MOST_SOURCES = 1_000
/** Of a name in From: what is longer is below them. */
const MOST_LABELS = 8
/** Rows that one answer is made of, the newest first. */
const MOST_ROWS_READ = 50_000
const COUNTED = ['messages', 'dkim_passed', 'spf_passed', 'passed', 'quarantined', 'rejected']
const MOST_SOURCES_TOLD = 200
const MOST_REPORTERS_TOLD = 20

interface Report {
  reporter: string
  reportId: string
  day: string
  now: number
}

export function createAuthenticationWrites(database: Database) {
  const ownerOf = createOwners(database)
  const count = createReportCounting(database)
  const addSource = createSourceWriter(database)
  const addSessions = database.prepare<[string, string, string, number]>(`
    insert into tls_sessions (domain, day, result, sessions)
    values (?, ?, ?, ?)
    on conflict (domain, day, result) do update set sessions = tls_sessions.sessions + excluded.sessions`)
  return {
    recordDmarcReport({ sources, ...report }) {
      const owners = ownerOf(sources.map(({ headerFrom }) => headerFrom))
      return count(
        'dmarc',
        report,
        byDomain(sources, ({ headerFrom }) => owners(headerFrom)),
        addSource,
      )
    },
    recordTlsReport({ results, ownNames, ...report }) {
      const owners = ownerOf(results.map(({ policyDomain }) => policyDomain))
      const domainOf = (name: string) => owners(name) ?? ownNames.find((own) => own === name)
      return count(
        'tls',
        report,
        byDomain(results, ({ policyDomain }) => domainOf(policyDomain)),
        (domain, each) => {
          for (const { result, sessions } of each) addSessions.run(domain, report.day, result, sessions)
        },
      )
    },
    ...createForgetting(database),
  } satisfies SomeVerbs
}

/** The living domain that a name is, or is below; the nearest of several. */
function createOwners(database: Database) {
  const find = oneColumn(database)<[string], string>(`
    select domains.name
    from json_each(?)
    cross join domains on domains.name = json_each.value and domains.removed_at is null`)
  return (names: readonly string[]): ((name: string) => string | undefined) => {
    const asked = [...new Set(names.flatMap(namesFrom))]
    const living = new Set(find.all(JSON.stringify(asked)))
    return (name) => namesFrom(name).find((each) => living.has(each))
  }
}

/** A name and those above it. */
function namesFrom(name: string): string[] {
  const labels = name.split('.').slice(-MOST_LABELS)
  return labels.slice(0, -1).map((_, index) => labels.slice(index).join('.'))
}

/** By the domain that each is about; those that are about none of ours are left out. */
function byDomain<Item>(items: readonly Item[], domainOf: (item: Item) => string | undefined): Map<string, Item[]> {
  const ours = items.flatMap((item) => {
    const domain = domainOf(item)
    return domain === undefined ? [] : [{ domain, item }]
  })
  const groups = Map.groupBy(ours, ({ domain }) => domain)
  return new Map([...groups].map(([domain, group]) => [domain, group.map(({ item }) => item)]))
}

/** Notes a report for each of its domains, and has what is new added. */
function createReportCounting(database: Database) {
  const countReports = oneColumn(database)<[string, string], number>(`
    select count(*) from authentication_reports where domain = ? and day = ?`)
  const note = database.prepare<[string, string, string, string, string, number]>(`
    insert into authentication_reports (domain, day, kind, reporter, report_id, at)
    values (?, ?, ?, ?, ?, ?)
    on conflict do nothing`)
  return <Item>(
    kind: 'dmarc' | 'tls',
    { reporter, reportId, day, now }: Report,
    domains: ReadonlyMap<string, Item[]>,
    add: (domain: string, items: Item[], report: Pick<Report, 'reporter' | 'day'>) => void,
  ): AuthenticationResult => {
    const results = new Set<AuthenticationResult>()
    for (const [domain, items] of domains) {
      if ((countReports.get(domain, day) ?? 0) >= MOST_REPORTS) {
        results.add('too-many')
      } else if (note.run(domain, day, kind, reporter, reportId, now).changes === 0) {
        results.add('repeated')
      } else {
        add(domain, items, { reporter, day })
        results.add('recorded')
      }
    }
    return (['recorded', 'too-many', 'repeated'] as const).find((result) => results.has(result)) ?? 'unknown-domain'
  }
}

function createSourceWriter(database: Database) {
  const countRows = oneColumn(database)<[string, string], number>(`
    select count(*) from dmarc_sources where domain = ? and day = ?`)
  const isThere = oneColumn(database)<[string, string, string, string], number>(`
    select 1 from dmarc_sources where domain = ? and day = ? and reporter = ? and ip = ?`)
  const add = database.prepare<[Omit<DmarcSource, 'headerFrom'> & { domain: string; day: string; reporter: string }]>(`
    insert into dmarc_sources
      (domain, day, reporter, ip, messages, dkim_passed, spf_passed, passed, quarantined, rejected)
    values
      (@domain, @day, @reporter, @ip, @messages, @dkimPassed, @spfPassed, @passed, @quarantined, @rejected)
    on conflict (domain, day, reporter, ip) do update set ${additionsOf('dmarc_sources', COUNTED)}`)
  return (domain: string, sources: DmarcSource[], { reporter, day }: Pick<Report, 'reporter' | 'day'>): void => {
    let rows = countRows.get(domain, day) ?? 0
    for (const source of sources) {
      const isKnown = isThere.get(domain, day, reporter, source.ip) !== undefined
      const hasRoom = isKnown || rows < MOST_SOURCES
      add.run({ ...source, domain, day, ...(hasRoom ? { reporter } : { reporter: '', ip: OTHER_SOURCES }) })
      if (!isKnown && hasRoom) rows++
    }
  }
}

function createForgetting(database: Database) {
  const tables = [
    ['authentication_reports', 'domain, day, kind, reporter, report_id'],
    ['dmarc_sources', 'domain, day, reporter, ip'],
    ['tls_sessions', 'domain, day, result'],
  ] as const
  const removeWhere = (condition: string) =>
    tables.map(([table, key]) =>
      database.prepare<[string, number]>(`
        delete from ${table} where (${key}) in (select ${key} from ${table} where ${condition} limit +?)`),
    )
  const removeOld = removeWhere('day < ?')
  const removeOfDomain = removeWhere('domain = ?')
  const sum = (counts: number[]): number => counts.reduce((total, each) => total + each, 0)
  return {
    forgetAuthenticationReports: (beforeDay, limit) =>
      sum(removeOld.map((remove) => remove.run(beforeDay, limit).changes)),
    forgetReportsOfDomain: (domain, limit) => sum(removeOfDomain.map((remove) => remove.run(domain, limit).changes)),
  } satisfies SomeVerbs
}

interface SourceRow extends Omit<SourceSums, 'firstDay' | 'lastDay'> {
  day: string
  reporter: string
}

export function createAuthenticationReads(database: Database) {
  const countReports = oneColumn(database)<[string, string, string], number>(`
    select count(*) from authentication_reports where domain = ? and day between ? and ? and kind = 'dmarc'`)
  const findDays = database.prepare<[string, string, string], DmarcDay>(`
    select day, sum(messages) as messages, sum(passed) as passed
    from dmarc_sources
    where domain = ? and day between ? and ?
    group by day`)
  const findRows = database.prepare<[string, string, string, number], SourceRow>(`
    select
      day, reporter, ip, messages, dkim_passed as dkimPassed, spf_passed as spfPassed, passed, quarantined, rejected
    from dmarc_sources
    where domain = ? and day between ? and ?
    order by day desc
    limit +?`)
  const findTls = database.prepare<[string, string, string], TlsDay>(`
    select day, result, sessions from tls_sessions where domain = ? and day between ? and ?`)
  return {
    dmarcFindings(domain, from, to) {
      const rows = findRows.all(domain, from, to, MOST_ROWS_READ)
      const reporters = new Set(rows.map(({ reporter }) => reporter))
      return {
        reports: countReports.get(domain, from, to) ?? 0,
        reporters: [...reporters].filter((name) => name !== '').slice(0, MOST_REPORTERS_TOLD),
        days: findDays.all(domain, from, to),
        sources: sumsOf(rows).slice(0, MOST_SOURCES_TOLD),
      }
    },
    tlsDays: (domain, from, to) => findTls.all(domain, from, to),
  } satisfies SomeVerbs
}

/** Rows of the same address added up, the largest first; `rows` come from the newest day on. */
function sumsOf(rows: readonly SourceRow[]): SourceSums[] {
  const sums = new Map<string, SourceSums>()
  for (const { day, reporter: _reporter, ...row } of rows) {
    const sum = sums.get(row.ip)
    if (sum === undefined) {
      sums.set(row.ip, { ...row, firstDay: day, lastDay: day })
      continue
    }
    sum.firstDay = day
    for (const field of SUMMED) sum[field] += row[field]
  }
  return [...sums.values()].toSorted((left, right) => right.messages - left.messages)
}

const SUMMED = ['messages', 'dkimPassed', 'spfPassed', 'passed', 'quarantined', 'rejected'] as const
