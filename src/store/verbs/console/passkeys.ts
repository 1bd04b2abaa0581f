/** Passkeys of people: by person, and by the credential that a browser brings. */
import type { Database } from '../../engine/database.ts'
import type { PasskeyRecord } from '../../records/console-records.ts'
import { storedIdentifier } from '../tools/stored-identifier.ts'
import { identifierFromBytes } from '../../../base/identifier.ts'
import type { SomeVerbs } from '../tools/verb-types.ts'

type PasskeyRow = Omit<PasskeyRecord, 'personId'> & { personId: Buffer }

const COLUMNS = `
  id, person_id as personId, site, public_key as publicKey, counter, label, created_at as createdAt, used_at as usedAt`

export function createPasskeyReads(database: Database) {
  const ofPerson = database.prepare<[Buffer], PasskeyRow>(`
    select ${COLUMNS} from passkeys where person_id = +? order by created_at`)
  const find = database.prepare<[string], PasskeyRow>(`select ${COLUMNS} from passkeys where id = +?`)
  return {
    passkeysOf: (personId) => ofPerson.all(storedIdentifier('per', personId)).map(toPasskey),
    findPasskey(id) {
      const row = find.get(id)
      return row === undefined ? null : toPasskey(row)
    },
  } satisfies SomeVerbs
}

export function createPasskeyWrites(database: Database) {
  const add = database.prepare<[object]>(`
    insert into passkeys (id, person_id, site, public_key, counter, label, created_at)
    values (@id, @personId, @site, @publicKey, @counter, @label, @createdAt)
    on conflict do nothing`)
  // The clock of the node that made the challenge may be ahead.
  const use = database.prepare<[object]>(`
    update passkeys set counter = @newCounter, used_at = max(@at, @challengedAt)
    where id = @id and counter = @counter
      and (used_at is null or used_at < @challengedAt or used_at > @latestUse)`)
  const remove = database.prepare<[string, Buffer]>('delete from passkeys where id = ? and person_id = ?')
  const removeAll = database.prepare<[Buffer]>('delete from passkeys where person_id = ?')
  return {
    addPasskey: ({ personId, ...passkey }) =>
      add.run({ ...passkey, personId: storedIdentifier('per', personId) }).changes === 1,
    usePasskey: ({ id, counter }, { counter: newCounter, ...times }) =>
      use.run({ id, counter, newCounter, ...times }).changes === 1,
    removePasskeys: (personId) => removeAll.run(storedIdentifier('per', personId)).changes,
    removePasskey: (id, personId) => remove.run(id, storedIdentifier('per', personId)).changes === 1,
  } satisfies SomeVerbs
}

const toPasskey = (row: PasskeyRow): PasskeyRecord => ({ ...row, personId: identifierFromBytes('per', row.personId) })
