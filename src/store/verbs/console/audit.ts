/** What people and API keys did: rows that are added and listed, newest first. A search looks at 10,000 rows a page. */
import type { Database } from '../../engine/database.ts'
import type { AuditEntry } from '../../records/console-records.ts'
import { createWalk, positionAfter } from '../tools/pages.ts'
import type { SomeVerbs } from '../tools/verb-types.ts'

interface AuditRow extends Omit<AuditEntry, 'facts'> {
  facts: string
}

export function createAuditWrites(database: Database) {
  const add = database.prepare<[AuditRow]>(`
    insert into audit (at, actor, act, facts, request_id) values (@at, @actor, @act, @facts, @requestId)`)
  const forget = database.prepare<[number, number]>(`
    delete from audit where audit_seq in (select audit_seq from audit where at < ? limit +?)`)
  return {
    addAudit: (entry) => void add.run({ ...entry, facts: JSON.stringify(entry.facts) }),
    forgetAudit: (before, limit) => forget.run(before, limit).changes,
  } satisfies SomeVerbs
}

export function createAuditReads(database: Database) {
  const walk = createWalk<number>(
    database,
    'audit_seq',
    'select audit_seq, actor, act, facts from audit where audit_seq < @position order by audit_seq desc',
    `@text is null or instr(lower(actor || ' ' || act || ' ' || facts), lower(@text)) > 0`,
  )
  const find = database.prepare<[number], AuditRow>(`
    select at, actor, act, facts, request_id as requestId from audit where audit_seq = ?`)
  return {
    listAudit({ text, limit, after }) {
      const { found, next } = walk({ text, position: positionAfter(after) }, limit)
      const rows = found.map((seq) => find.get(seq)).filter((row) => row !== undefined)
      const entries = rows.map((row) => ({ ...row, facts: JSON.parse(row.facts) as object }))
      return { entries, next: next === null ? null : String(next) }
    },
  } satisfies SomeVerbs
}
