/**
 * People, login links and sessions of the console. Of links and cookies only the SHA-256 is stored. There is always an
 * owner once there was one: the last can neither be removed nor become less.
 */
import type { Database } from '../../engine/database.ts'
import { ServiceError } from '../../../base/errors.ts'
import { identifierFromBytes, identifierToBytes } from '../../../base/identifier.ts'
import type { NewSession, PersonRecord, PersonRole, SessionRecord } from '../../records/console-records.ts'
import { oneColumn } from '../tools/statements.ts'
import { getNamed, storedIdentifier } from '../tools/stored-identifier.ts'
import type { SomeVerbs } from '../tools/verb-types.ts'

type PersonRow = Omit<PersonRecord, 'id'> & { id: Buffer }

interface SessionRow extends Omit<SessionRecord, 'id' | 'person' | 'keyId'> {
  id: Buffer
  personId: Buffer | null
  name: string
  role: PersonRole
  personCreatedAt: number
  keyId: Buffer | null
}

const PERSON_COLUMNS = 'id, name, role, created_at as createdAt'
const SESSIONS = `
  select
    sessions.id, person_id as personId, name, role, people.created_at as personCreatedAt, key_id as keyId, address,
    user_agent as userAgent, sessions.created_at as createdAt, used_at as usedAt, expires_at as expiresAt
  from sessions left join people on people.id = person_id`
const MOST_LISTED = 1_000

export function createLoginReads(database: Database) {
  const findSession = database.prepare<[Uint8Array], SessionRow>(`${SESSIONS} where hash = +?`)
  const sessions = database.prepare<[number], SessionRow>(`${SESSIONS} order by used_at desc limit ?`)
  const people = database.prepare<[], PersonRow>(`select ${PERSON_COLUMNS} from people order by name`)
  return {
    findSession(hash) {
      const row = findSession.get(hash)
      return row === undefined ? null : toSession(row)
    },
    listSessions: () => sessions.all(MOST_LISTED).map(toSession),
    listPeople: () => people.all().map(toPerson),
  } satisfies SomeVerbs
}

export function createLoginWrites(database: Database) {
  return {
    ...createLinkWrites(database),
    ...createSessionWrites(database),
    ...createPeopleWrites(database),
  } satisfies SomeVerbs
}

function createLinkWrites(database: Database) {
  const findPerson = database.prepare<[string], PersonRow>(`select ${PERSON_COLUMNS} from people where name = ?`)
  const addPerson = database.prepare<[PersonRow]>(`
    insert into people (id, name, role, created_at) values (@id, @name, @role, @createdAt)`)
  const addLink = database.prepare<[Uint8Array, Buffer, number]>(`
    insert into login_links (hash, person_id, expires_at) values (?, ?, ?)`)
  const forgetLinks = database.prepare<[number]>('delete from login_links where expires_at < ?')
  const findLink = database.prepare<[Uint8Array], { personId: Buffer; expiresAt: number; usedAt: number | null }>(`
    select person_id as personId, expires_at as expiresAt, used_at as usedAt from login_links where hash = ?`)
  const useLink = database.prepare<[number, Uint8Array]>('update login_links set used_at = ? where hash = ?')
  const addSession = createSessionWriter(database)
  return {
    addLoginLink(person, link, now) {
      forgetLinks.run(now)
      const known = findPerson.get(person.name)
      const { role } = person
      if (known !== undefined && role !== null && known.role !== role) {
        throw new ServiceError('conflict', `${known.name} is ${known.role} already: change the role first`)
      }
      const row = known ?? { ...person, role: role ?? 'owner', id: storedIdentifier('per', person.id) }
      if (known === undefined) addPerson.run(row)
      addLink.run(link.hash, row.id, link.expiresAt)
      return toPerson(row)
    },
    openLinkedSession(linkHash, session) {
      const link = findLink.get(linkHash)
      if (link === undefined) return 'unknown'
      if (link.usedAt !== null) return 'used'
      if (link.expiresAt <= session.createdAt) return 'expired'
      useLink.run(session.createdAt, linkHash)
      return addSession(session, link.personId, null)
    },
  } satisfies SomeVerbs
}

function createSessionWrites(database: Database) {
  const note = database.prepare<[number, Buffer]>('update sessions set used_at = max(used_at, ?) where id = ?')
  const end = database.prepare<[Buffer]>('delete from sessions where id = ?')
  const forget = database.prepare<[number, number]>('delete from sessions where expires_at <= ? or used_at < ?')
  const findPerson = database.prepare<[Buffer], PersonRow>(`select ${PERSON_COLUMNS} from people where id = +?`)
  const addSession = createSessionWriter(database)
  return {
    openKeySession: (keyId, session) => addSession(session, null, storedIdentifier('key', keyId)),
    openPersonSession(personId, session) {
      const person = getNamed(findPerson, 'per', personId)
      return person === undefined ? null : addSession(session, person.id, null)
    },
    noteSessionUse: (id, at) => void note.run(at, storedIdentifier('ses', id)),
    endSession(id) {
      const stored = identifierToBytes('ses', id)
      return stored !== undefined && end.run(stored).changes === 1
    },
    forgetSessions: (now, idleSince) => void forget.run(now, idleSince),
  } satisfies SomeVerbs
}

function createSessionWriter(database: Database) {
  const add = database.prepare<[object]>(`
    insert into sessions (id, hash, person_id, key_id, address, user_agent, created_at, used_at, expires_at)
    values (@id, @hash, @personId, @keyId, @address, @userAgent, @createdAt, @createdAt, @expiresAt)`)
  const find = database.prepare<[Uint8Array], SessionRow>(`${SESSIONS} where hash = ?`)
  return (session: NewSession, personId: Buffer | null, keyId: Buffer | null): SessionRecord => {
    add.run({ ...session, id: storedIdentifier('ses', session.id), personId, keyId })
    return toSession(find.get(session.hash) as SessionRow)
  }
}

function createPeopleWrites(database: Database) {
  const find = database.prepare<[Buffer], PersonRow>(`select ${PERSON_COLUMNS} from people where id = ?`)
  const countOwners = oneColumn(database)<[], number>(`select count(*) from people where role = 'owner'`)
  const change = database.prepare<[PersonRole, Buffer]>('update people set role = ? where id = ?')
  const remove = database.prepare<[Buffer]>('delete from people where id = ?')
  const requireOtherOwner = ({ name, role }: PersonRow): void => {
    if (role !== 'owner' || countOwners.get() !== 1) return
    throw new ServiceError('conflict', `${name} is the last owner: make somebody else an owner first`)
  }
  return {
    changeRole(id, role) {
      const row = getNamed(find, 'per', id)
      if (row === undefined) return null
      if (role !== 'owner') requireOtherOwner(row)
      change.run(role, row.id)
      return toPerson({ ...row, role })
    },
    removePerson(id) {
      const row = getNamed(find, 'per', id)
      if (row === undefined) return null
      requireOtherOwner(row)
      remove.run(row.id)
      return toPerson(row)
    },
  } satisfies SomeVerbs
}

const toPerson = (row: PersonRow): PersonRecord => ({ ...row, id: identifierFromBytes('per', row.id) })

function toSession({ personId, name, role, personCreatedAt, keyId, ...row }: SessionRow): SessionRecord {
  return {
    ...row,
    id: identifierFromBytes('ses', row.id),
    person: personId === null ? null : toPerson({ id: personId, name, role, createdAt: personCreatedAt }),
    keyId: keyId === null ? null : identifierFromBytes('key', keyId),
  }
}
