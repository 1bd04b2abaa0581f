/**
 * Who opens the console: links that log in once, sessions, people, and the audit of what they do (http/README.md
 * "Console"). Secrets are 32 random bytes; the store knows their SHA-256 alone. Times are of the real clock: a
 * server for development that runs ahead of it does not log anybody out.
 */
import { hash, randomBytes } from 'node:crypto'
import { DAY, MINUTE, type Clock } from '../base/clock.ts'
import { errorText, ServiceError } from '../base/errors.ts'
import { newIdentifier } from '../base/identifier.ts'
import type { Logger } from '../base/logger.ts'
import {
  unknownPerson,
  type LiveSession,
  type LoginLink,
  type Logins,
  type OpenedSession,
  type Role,
  type Visitor,
} from '../http/exchange/logins.ts'
import type { ApiKeys } from '../senders/api-key.ts'
import type { NewSession, SessionRecord } from '../store/records/console-records.ts'
import type { Store } from '../store/store.ts'

interface LoginsOptions {
  store: Store
  apiKeys: Pick<ApiKeys, 'authenticate' | 'usable'>
  /** After so long without a request a session is over, in milliseconds. */
  idle: number
  realClock: Clock
  logger: Logger
}

const LINK_MILLISECONDS = 15 * MINUTE
const SESSION_MILLISECONDS = 30 * DAY
/** Or sooner, where a session ends after a few minutes without use. */
const NOTED_EVERY_MILLISECONDS = MINUTE
const NOTED_IN_IDLE = 10
const MOST_NAME_CHARACTERS = 64
const MOST_USER_AGENT_CHARACTERS = 300
/** 32 bytes in base64url. */
const SECRET = /^[\w-]{43}$/
/** Letters, digits and what stands between them in names and mail addresses. */
const NAME = /^[\p{L}\p{N}][\p{L}\p{N} ._@+-]*$/u

export function createLogins(options: LoginsOptions): Logins {
  const { store, realClock, logger } = options
  return {
    ...createEntrances(options),
    ...createSessions(options),
    people: () => store.listPeople(),
    changeRole: async (id, role) => known(id, await store.changeRole(id, role)),
    removePerson: async (id) => known(id, await store.removePerson(id)),
    note(act) {
      store.addAudit({ ...act, at: realClock.now() }).catch((thrown: unknown) => {
        logger.warn({ ...act, error: errorText(thrown) }, 'an act is missing in the audit')
      })
    },
    audit: (filter) => store.listAudit(filter),
  }
}

function createEntrances({ store, apiKeys, idle, realClock }: LoginsOptions) {
  const forgetOver = (): Promise<void> => store.forgetSessions(realClock.now(), realClock.now() - idle)
  const newSession = ({ address, userAgent }: Visitor): { secret: string; session: NewSession } => {
    const secret = newSecret()
    const now = realClock.now()
    const session = {
      id: newIdentifier('ses', now),
      hash: hashOf(secret),
      address,
      userAgent: userAgent.slice(0, MOST_USER_AGENT_CHARACTERS),
      createdAt: now,
      expiresAt: now + SESSION_MILLISECONDS,
    }
    return { secret, session }
  }

  return {
    async makeLink(given: { name: string; role: Role | null }, milliseconds = LINK_MILLISECONDS): Promise<LoginLink> {
      const secret = newSecret()
      const now = realClock.now()
      const name = given.name.trim()
      if (name.length > MOST_NAME_CHARACTERS || !NAME.test(name)) {
        throw new ServiceError('invalid_request', `name: 1 to ${MOST_NAME_CHARACTERS} letters, digits, spaces, ._@+-`)
      }
      const expiresAt = now + milliseconds
      const wanted = { id: newIdentifier('per', now), name, role: given.role, createdAt: now }
      const person = await store.addLoginLink(wanted, { hash: hashOf(secret), expiresAt }, now)
      return { secret, person, expiresAt }
    },
    async openWithLink(secret: string, visitor: Visitor): Promise<OpenedSession> {
      if (!SECRET.test(secret)) throw refusedLink('malformed')
      const opening = newSession(visitor)
      const opened = await store.openLinkedSession(hashOf(secret), opening.session)
      if (typeof opened === 'string') throw refusedLink(opened)
      await forgetOver()
      return { secret: opening.secret, who: opened.person?.name ?? '', milliseconds: SESSION_MILLISECONDS }
    },
    async openFor(personId: string, visitor: Visitor): Promise<OpenedSession> {
      const { secret, session } = newSession(visitor)
      const opened = await store.openPersonSession(personId, session)
      if (opened?.person == null) throw new ServiceError('unauthorized', 'the person was removed')
      await forgetOver()
      return { secret, who: opened.person.name, milliseconds: SESSION_MILLISECONDS }
    },
    async openWithKey(key: string, visitor: Visitor): Promise<OpenedSession> {
      const record = await apiKeys.authenticate(key, visitor.address)
      const { secret, session } = newSession(visitor)
      await store.openKeySession(record.id, session)
      await forgetOver()
      return { secret, who: `${record.name} …${record.last4}`, milliseconds: SESSION_MILLISECONDS }
    },
  }
}

function createSessions({ store, apiKeys, idle, realClock, logger }: LoginsOptions) {
  const notedEvery = Math.min(NOTED_EVERY_MILLISECONDS, idle / NOTED_IN_IDLE)
  const noteUse = ({ id, usedAt }: SessionRecord): void => {
    const now = realClock.now()
    if (now - usedAt < notedEvery) return
    store.noteSessionUse(id, now).catch((thrown: unknown) => {
      logger.warn({ session_id: id, error: errorText(thrown) }, 'use of a session not noted')
    })
  }
  const isOver = ({ expiresAt, usedAt }: SessionRecord, now: number): boolean =>
    expiresAt <= now || usedAt + idle <= now

  const find = async (secret: string, address: string): Promise<{ found: SessionRecord; who: LiveSession['who'] }> => {
    const found = SECRET.test(secret) ? await store.findSession(hashOf(secret)) : null
    if (found === null) throw new ServiceError('unauthorized', 'the session is unknown, or it was ended')
    const now = realClock.now()
    if (isOver(found, now)) {
      await store.forgetSessions(now, now - idle)
      throw new ServiceError('unauthorized', 'the session is over')
    }
    return { found, who: found.person ?? (await apiKeys.usable(found.keyId ?? '', address)) }
  }

  return {
    async session(secret: string, address: string): Promise<LiveSession> {
      const { found, who } = await find(secret, address)
      noteUse(found)
      return { id: found.id, who }
    },
    isAlive: (secret: string, address: string) => find(secret, address).then(Boolean, () => false),
    end: (id: string) => store.endSession(id),
    async endOwn(secret: string): Promise<void> {
      const found = SECRET.test(secret) ? await store.findSession(hashOf(secret)) : null
      if (found !== null) await store.endSession(found.id)
    },
    async sessions() {
      const now = realClock.now()
      return (await store.listSessions()).filter((session) => !isOver(session, now))
    },
  }
}

function known<Found>(id: string, found: Found | null): Found {
  if (found === null) throw unknownPerson(id)
  return found
}

const refusedLink = (why: string): ServiceError => new ServiceError('unauthorized', `login link: ${why}`)

const newSecret = (): string => randomBytes(32).toString('base64url')

const hashOf = (secret: string): Buffer => hash('sha256', secret, 'buffer')
