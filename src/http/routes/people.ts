/**
 * Who opens the console, for administrators: login links, people and their roles, sessions, and the audit of what was
 * done (http/README.md "Console").
 */
import * as wire from '../../api/people.ts'
import { toUnixSeconds, secondsOrNull } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { servedConsole, type HttpFeatures } from '../exchange/features.ts'
import type { ListedSession, Person } from '../exchange/logins.ts'
import type { Passkey } from '../exchange/passkeys.ts'
import { CREATED, okData, okList, success, successList } from '../exchange/answer.ts'
import { param, routesOf, type ApiRequest, type Note, type Route } from '../exchange/route.ts'

const { get, post, patch, remove } = routesOf('admin')

type PeopleFeatures = Pick<HttpFeatures, 'logins' | 'passkeys' | 'consoleUrl'>

export function peopleRoutes(features: PeopleFeatures, note: Note): Route[] {
  return [...personRoutes(features, note), ...passkeyRoutes(features, note), ...sessionRoutes(features, note)]
}

function personRoutes({ logins, consoleUrl }: PeopleFeatures, note: Note): Route[] {
  return [
    post('/admin/people', {
      summary: 'A link that logs a person in once; makes the person when there is none of the name.',
      body: wire.makeLoginLinkSchema,
      ok: okData(wire.loginLinkSchema, CREATED),
      errors: ['conflict'],
      async handler(request, { name, role }) {
        requireBoundless(request)
        const root = servedConsole(consoleUrl)
        const { secret, person, expiresAt } = await logins.makeLink({ name, role })
        note('login link made', request, { person: person.name, role: person.role })
        const url = `${root}login/${secret}`
        return success({ url, expires_at: toUnixSeconds(expiresAt), person: personJson(person) }, CREATED)
      },
    }),
    get('/admin/people', {
      summary: 'Who may open the console.',
      ok: okList(wire.personSchema),
      handler: async () => successList((await logins.people()).map(personJson)),
    }),
    patch('/admin/people/:person_id', {
      summary: 'Gives a person another role.',
      body: wire.changeRoleSchema,
      ok: okData(wire.personSchema),
      errors: ['conflict'],
      async handler(request, { role }) {
        requireBoundless(request)
        const person = await logins.changeRole(param(request, 'person_id'), role)
        note('role changed', request, { person: person.name, role })
        return success(personJson(person))
      },
    }),
    remove('/admin/people/:person_id', {
      summary: 'Removes a person with all sessions and links.',
      ok: okData(wire.personSchema),
      errors: ['conflict'],
      async handler(request) {
        const person = await logins.removePerson(param(request, 'person_id'))
        note('person removed', request, { person: person.name })
        return success(personJson(person))
      },
    }),
  ]
}

function passkeyRoutes({ passkeys }: PeopleFeatures, note: Note): Route[] {
  return [
    get('/admin/people/:person_id/passkeys', {
      summary: 'The passkeys of a person, the oldest first.',
      ok: okList(wire.passkeySchema),
      async handler(request) {
        return successList((await passkeys.ofPerson(param(request, 'person_id'))).map(passkeyJson))
      },
    }),
    remove('/admin/people/:person_id/passkeys', {
      summary: 'Removes all passkeys of a person: sessions stay.',
      ok: okData(wire.removedPasskeysSchema),
      async handler(request) {
        const { person, removed } = await passkeys.removeAll(param(request, 'person_id'))
        note('passkeys removed', request, { person: person.name, removed })
        return success({ person: personJson(person), removed })
      },
    }),
  ]
}

/** People log in from anywhere and for good: a key that may not makes none. */
function requireBoundless({ principal }: ApiRequest): void {
  if (principal.allowedIps.length === 0 && principal.expiresAt === null) return
  throw new ServiceError('forbidden', 'a key that expires, or is for some addresses, lets nobody into the console')
}

function sessionRoutes({ logins }: PeopleFeatures, note: Note): Route[] {
  return [
    get('/admin/sessions', {
      summary: 'Sessions of the console that are open, the latest used first.',
      ok: okList(wire.sessionSchema),
      handler: async () => successList((await logins.sessions()).map(sessionJson)),
    }),
    post('/admin/sessions/:session_id/end', {
      summary: 'Ends a session.',
      ok: okData(wire.endedSessionSchema),
      async handler(request) {
        const id = param(request, 'session_id')
        if (!(await logins.end(id))) throw new ServiceError('not_found', `session ${id.slice(0, 64)}`)
        note('session ended', request, { session_id: id })
        return success({ ended: true })
      },
    }),
    get('/admin/audit', {
      summary: 'What people and API keys did, newest first.',
      query: wire.listAuditSchema,
      ok: okList(wire.auditEntrySchema),
      async handler(_request, { q, limit, after }) {
        const { entries, next } = await logins.audit({ text: q, limit, after })
        const listed = entries.map(({ at, requestId, ...entry }) => ({
          at: toUnixSeconds(at),
          ...entry,
          request_id: requestId,
        }))
        return successList(listed, next)
      },
    }),
  ]
}

function personJson({ id, name, role, createdAt }: Person): wire.PersonJson {
  return { id, name, role, created_at: toUnixSeconds(createdAt) }
}

function passkeyJson({ id, site, label, createdAt, usedAt }: Passkey): wire.PasskeyJson {
  return { id, site, label, created_at: toUnixSeconds(createdAt), used_at: secondsOrNull(usedAt) }
}

function sessionJson({ id, person, keyId, address, userAgent, ...times }: ListedSession): wire.SessionJson {
  return {
    id,
    person: person === null ? null : personJson(person),
    key_id: keyId,
    address,
    user_agent: userAgent,
    created_at: toUnixSeconds(times.createdAt),
    used_at: toUnixSeconds(times.usedAt),
    expires_at: toUnixSeconds(times.expiresAt),
  }
}
