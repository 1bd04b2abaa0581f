/** The sample of reports that name none of our messages: the newest few, for the operator to look at. */
import type { Database } from 'better-sqlite3'
import type { UnmatchedReport } from '../../records/report-records.ts'

const MOST_KEPT = 200

export function createKeepUnmatchedReport(database: Database): (report: UnmatchedReport) => void {
  const add = database.prepare<[number, string, string, string, string, Uint8Array]>(`
    insert into unmatched_reports (at, kind, sender, recipient, remote_address, bytes)
    values (?, ?, ?, ?, ?, ?)`)
  const dropOldest = database.prepare<[number]>(
    'delete from unmatched_reports where unmatched_seq <= (select max(unmatched_seq) from unmatched_reports) - ?',
  )
  return ({ at, kind, sender, recipient, remoteAddress, bytes }) => {
    add.run(at, kind, sender, recipient, remoteAddress, bytes)
    dropOldest.run(MOST_KEPT)
  }
}

/** Newest first. */
export function createListUnmatchedReports(database: Database): (limit: number) => UnmatchedReport[] {
  const list = database.prepare<[number], UnmatchedReport>(`
    select at, kind, sender, recipient, remote_address as remoteAddress, bytes
    from unmatched_reports
    order by unmatched_seq desc
    limit +?`)
  return (limit) => list.all(limit)
}

export function createForgetUnmatchedReports(database: Database): (before: number) => number {
  const forget = database.prepare<[number]>('delete from unmatched_reports where at < ?')
  return (before) => forget.run(before).changes
}
