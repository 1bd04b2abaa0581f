/**
 * What the console asks of logins; the composition root hands it over (operations/logins.ts). Refusals are ServiceError
 * `unauthorized`, and `details` says for the log why.
 */
import { ServiceError } from '../../base/errors.ts'
import type { ApiKeyRecord } from '../../senders/api-key.ts'

export type Role = 'owner' | 'operator' | 'reader'

export interface Person {
  id: string
  name: string
  role: Role
  /** Unix milliseconds, here and below. */
  createdAt: number
}

export interface Visitor {
  address: string
  userAgent: string
}

export interface OpenedSession {
  /** For the cookie, told only now. */
  secret: string
  who: string
  /** How long it is there at most. */
  milliseconds: number
}

/** Whose session it is: a person's, or that of an API key as the key is now. */
export interface LiveSession {
  id: string
  who: Person | ApiKeyRecord
}

export interface ListedSession {
  id: string
  /** null: it was opened with an API key. */
  person: Person | null
  keyId: string | null
  address: string
  userAgent: string
  createdAt: number
  usedAt: number
  expiresAt: number
}

interface AuditedAct {
  at: number
  actor: string
  act: string
  facts: object
  requestId: string
}

export interface Logins {
  /**
   * A link for this person, who is made when there is none of the name; role null: owner, or whatever a known person is.
   * ServiceError `invalid_request` for a name, `conflict` for a known person of another role.
   */
  makeLink(person: { name: string; role: Role | null }, milliseconds?: number): Promise<LoginLink>
  openWithLink(secret: string, visitor: Visitor): Promise<OpenedSession>
  /** For a person who was recognized otherwise. */
  openFor(personId: string, visitor: Visitor): Promise<OpenedSession>
  openWithKey(key: string, visitor: Visitor): Promise<OpenedSession>
  /** ServiceError `unauthorized` when the session has ended, or its key may not be used from this address. */
  session(secret: string, address: string): Promise<LiveSession>
  /** Whether it would be found. To ask is no use of it: what goes on by itself keeps no session from ending. */
  isAlive(secret: string, address: string): Promise<boolean>
  /** False: there was none. */
  end(sessionId: string): Promise<boolean>
  /** By its cookie, whatever it may still be used for. */
  endOwn(secret: string): Promise<void>
  sessions(): Promise<ListedSession[]>
  people(): Promise<Person[]>
  /** ServiceError `not_found`; `conflict` for the last owner. */
  changeRole(personId: string, role: Role): Promise<Person>
  /** With all sessions. The same errors. */
  removePerson(personId: string): Promise<Person>
  /** What somebody did; never throws: what cannot be written is in the log. */
  note(act: Omit<AuditedAct, 'at'>): void
  audit(filter: {
    text: string | null
    limit: number
    after: string | null
  }): Promise<{ entries: AuditedAct[]; next: string | null }>
}

export function unknownPerson(id: string): ServiceError {
  return new ServiceError('not_found', `person ${id.slice(0, 64)}`)
}

export interface LoginLink {
  secret: string
  person: Person
  expiresAt: number
}
