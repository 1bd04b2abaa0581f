/** People who open the console, the links they come in by, their sessions; and the audit of what was done. */

export type PersonRole = 'owner' | 'operator' | 'reader'

export interface PersonRecord {
  id: string
  /** Unlike every other one. */
  name: string
  role: PersonRole
  createdAt: number
}

interface InvitedPerson extends Omit<PersonRecord, 'role'> {
  role: PersonRole | null
}

export interface SessionRecord {
  id: string
  /** null: it was opened with an API key. */
  person: PersonRecord | null
  /** null: it is a person's. */
  keyId: string | null
  /** It was opened from. */
  address: string
  /** Of the browser that opened it. */
  userAgent: string
  createdAt: number
  /** Right to within a minute. */
  usedAt: number
  expiresAt: number
}

/** What a browser brings when a session is opened. `hash`: SHA-256 of the secret in its cookie. */
export type NewSession = Omit<SessionRecord, 'person' | 'keyId' | 'usedAt'> & { hash: Uint8Array }

interface LoginLink {
  /** SHA-256 of the secret in the link. */
  hash: Uint8Array
  expiresAt: number
}

export interface PasskeyRecord {
  /** Of the credential, base64url. */
  id: string
  personId: string
  /** Host name it belongs to. */
  site: string
  /** COSE. */
  publicKey: Uint8Array
  counter: number
  /** The browser it was made in. */
  label: string
  createdAt: number
  usedAt: number | null
}

export interface PasskeyUse {
  counter: number
  /** When the challenge was made that it answered. */
  challengedAt: number
  at: number
  /** A last use after this was noted by a clock that ran ahead, and counts as none. */
  latestUse: number
}

/** Why a link opened nothing. */
type LinkRefusal = 'unknown' | 'expired' | 'used'

export interface AuditEntry {
  at: number
  actor: string
  act: string
  /** What it was done to, as plain data. */
  facts: object
  requestId: string
}

export interface ConsoleVerbs {
  /**
   * A link for the person of this name, who is made with this role when there is none yet; without a role: as owner, or
   * whatever a known person is. ServiceError `conflict` for a known person of another role. Returns who it is for. Links
   * that expired before `now` are forgotten.
   */
  addLoginLink(person: InvitedPerson, link: LoginLink, now: number): Promise<PersonRecord>
  /** Uses the link up and opens a session of its person; a link opens one session, however often it is tried. */
  openLinkedSession(linkHash: Uint8Array, session: NewSession): Promise<SessionRecord | LinkRefusal>
  openKeySession(keyId: string, session: NewSession): Promise<SessionRecord>
  /** null: there is no such person. */
  openPersonSession(personId: string, session: NewSession): Promise<SessionRecord | null>
  /** The oldest first. */
  passkeysOf(personId: string): Promise<PasskeyRecord[]>
  findPasskey(id: string): Promise<PasskeyRecord | null>
  /** False: there is one of this id. */
  addPasskey(passkey: Omit<PasskeyRecord, 'usedAt'>): Promise<boolean>
  /** False: it has been used, or removed, since it was read, or the challenge is from before its last use. */
  usePasskey(passkey: PasskeyRecord, use: PasskeyUse): Promise<boolean>
  /** False: this person has none such. */
  removePasskey(id: string, personId: string): Promise<boolean>
  /** All of the person; returns how many went. */
  removePasskeys(personId: string): Promise<number>
  /** null: there is none, or it was ended; whether it has expired is for the caller to see. */
  findSession(hash: Uint8Array): Promise<SessionRecord | null>
  noteSessionUse(id: string, at: number): Promise<void>
  /** All, the latest used first. At most 1,000. */
  listSessions(): Promise<SessionRecord[]>
  /** False: there was none. */
  endSession(id: string): Promise<boolean>
  /** Those that ended by time, or were not used since `idleSince`. */
  forgetSessions(now: number, idleSince: number): Promise<void>
  /** By name. */
  listPeople(): Promise<PersonRecord[]>
  /** null: unknown. ServiceError `conflict` for the last owner. */
  changeRole(id: string, role: PersonRole): Promise<PersonRecord | null>
  /** With all sessions and links. null: unknown. ServiceError `conflict` for the last owner. */
  removePerson(id: string): Promise<PersonRecord | null>
  addAudit(entry: AuditEntry): Promise<void>
  /** Returns how many went. */
  forgetAudit(before: number, limit: number): Promise<number>
  /** Newest first; `text`: only entries that hold it, in any case. `next`: null at the end. */
  listAudit(filter: {
    text: string | null
    limit: number
    after: string | null
  }): Promise<{ entries: AuditEntry[]; next: string | null }>
}
