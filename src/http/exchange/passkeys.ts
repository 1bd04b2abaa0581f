/**
 * What the console asks of passkeys; the composition root hands it over (operations/passkeys.ts). Refusals are
 * ServiceError `unauthorized`, and `details` says for the log why.
 */
import type { IncomingMessage } from 'node:http'
import { isIP } from 'node:net'
import { ServiceError } from '../../base/errors.ts'
import type { OpenedSession, Person, Visitor } from './logins.ts'

/** Where the browser is: a passkey belongs to one host name. */
export interface BrowserSite {
  origin: string
  host: string
}

export interface Passkey {
  id: string
  /** Host name it belongs to. */
  site: string
  label: string
  /** Unix milliseconds. */
  createdAt: number
  usedAt: number | null
}

export interface Passkeys {
  of(person: Person): Promise<Passkey[]>
  /** For owners. ServiceError `not_found`. */
  ofPerson(personId: string): Promise<Passkey[]>
  /** For owners: all that this person has. The same error. */
  removeAll(personId: string): Promise<{ person: Person; removed: number }>
  /** For `navigator.credentials.create`, as JSON. */
  newOptions(person: Person, site: BrowserSite): Promise<object>
  add(person: Person, site: BrowserSite, response: unknown, label: string): Promise<void>
  /** False: this person has none such. */
  remove(person: Person, id: string): Promise<boolean>
  /** For `navigator.credentials.get`, as JSON. */
  loginOptions(site: BrowserSite): Promise<object>
  open(site: BrowserSite, response: unknown, visitor: Visitor): Promise<OpenedSession>
}

/** From the Origin of the request, which was found to be this host. ServiceError `conflict` where no passkey works. */
export function siteOf({ headers }: IncomingMessage): BrowserSite {
  const origin = headers.origin ?? ''
  const { protocol, hostname } = URL.canParse(origin) ? new URL(origin) : { protocol: '', hostname: '' }
  const isName = hostname !== '' && !hostname.startsWith('[') && isIP(hostname) === 0
  if (isName && (protocol === 'https:' || hostname === 'localhost')) return { origin, host: hostname }
  throw new ServiceError('conflict', 'a passkey belongs to a host name with TLS, or to localhost')
}
