/**
 * `sternpost console`: who opens the console in the browser (http/README.md "Console"). Links are made over the admin
 * socket, or with a key that has the scope `admin`; each logs in once, within 15 minutes.
 */
import type { Command } from 'commander'
import {
  loginLinkSchema,
  passkeySchema,
  personSchema,
  removedPasskeysSchema,
  sessionSchema,
  type PasskeyJson,
  type PersonJson,
  type SessionJson,
} from '../../api/people.ts'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { ask, askAll, callServer } from '../shared/api-client.ts'
import { commandText } from '../shared/command-text.ts'
import { printList, printNote, printResult } from '../shared/print.ts'
import { localTime, type Columns } from '../shared/text.ts'
import { addVerb, type Given, type VerbFlags } from '../shared/verb.ts'

type OpenFlags = VerbFlags & Given<'as' | 'role'>
type PasskeysFlags = VerbFlags & { remove?: true }

const OWNER_OF_SHELL = process.env['SUDO_USER'] ?? process.env['USER'] ?? 'owner'

export function addConsoleCommands(program: Command): void {
  const console = program.command('console').description('the console in the browser, and who may open it')
  addVerb(console, 'open', 'print a link that logs in once, within 15 minutes', '--as ada --role operator')
    .option('--as <name>', 'whom it is for; a new name is a new person (default: who you are on this machine)')
    .option('--role <role>', 'of a new person: owner (default), operator (no people, no keys) or reader')
    .action(open)
  addVerb(console, 'people', 'list who may open the console').action(people)
  addVerb(console, 'role <name> <role>', 'give a person another role', 'ada reader').action(changeRole)
  addVerb(console, 'remove <name>', 'remove a person, with all sessions', 'ada').action(removePerson)
  addVerb(console, 'passkeys <name>', 'list the passkeys of a person, or remove them all', 'ada --remove')
    .option('--remove', 'all of them; sessions stay')
    .action(passkeys)
  addVerb(console, 'sessions', 'list the sessions that are open').action(sessions)
  addVerb(console, 'end <session>', 'end a session', 'ses_01kapg6t3vq8x2m5r7w9y4c6d0').action(endSession)
}

async function open(flags: OpenFlags): Promise<void> {
  const body = { name: flags.as ?? OWNER_OF_SHELL, role: flags.role ?? null }
  const link = await ask(flags, loginLinkSchema, 'POST /v1/admin/people', body)
  printResult(flags, link, () => `${link.url}\n`)
  const { name, role } = link.person
  printNote(flags, `It logs ${name} (${role}) in once, until ${localTime(link.expires_at)}. Whoever has it can use it.`)
}

async function people(flags: VerbFlags): Promise<void> {
  const found = await askAll(flags, personSchema, '/v1/admin/people')
  const open = commandText(flags, { verb: 'console open', options: { as: 'ada' } })
  printList(flags, PEOPLE, found, `Nobody yet. Let somebody in: ${open}`)
}

async function changeRole(name: string, role: string, flags: VerbFlags): Promise<void> {
  const { id } = await personOf(name, flags)
  const changed = await ask(flags, personSchema, `PATCH /v1/admin/people/${id}`, { role })
  printResult(flags, changed, () => `${name}: ${changed.role}\n`)
}

async function removePerson(name: string, flags: VerbFlags): Promise<void> {
  const { id } = await personOf(name, flags)
  const removed = await callServer(flags, `DELETE /v1/admin/people/${id}`)
  printResult(flags, removed, () => `${name}: removed, and logged out everywhere\n`)
}

async function passkeys(name: string, flags: PasskeysFlags): Promise<void> {
  const path = `/v1/admin/people/${(await personOf(name, flags)).id}/passkeys` as const
  if (flags.remove === true) {
    const result = await ask(flags, removedPasskeysSchema, `DELETE ${path}`)
    printResult(flags, result, () => `${name}: ${result.removed} removed\n`)
    return
  }
  printList(flags, PASSKEYS, await askAll(flags, passkeySchema, path), `${name} has none.`)
}

async function sessions(flags: VerbFlags): Promise<void> {
  printList(flags, SESSIONS, await askAll(flags, sessionSchema, '/v1/admin/sessions'), 'No session is open.')
}

async function endSession(id: string, flags: VerbFlags): Promise<void> {
  const ended = await callServer(flags, `POST /v1/admin/sessions/${encodeURIComponent(id)}/end`, {})
  printResult(flags, ended, () => `${id}: ended\n`)
}

async function personOf(name: string, flags: VerbFlags): Promise<PersonJson> {
  const found = await askAll(flags, personSchema, '/v1/admin/people')
  const person = found.find((each) => each.name === name || each.id === name)
  if (person !== undefined) return person
  const known = found.map((each) => each.name).join(', ')
  throw new ProcessExit(EXIT.failed, `sternpost: nobody is called ${name}; known are: ${known}`)
}

const PEOPLE: Columns<PersonJson> = {
  ID: ({ id }) => id,
  NAME: ({ name }) => name,
  ROLE: ({ role }) => role,
  SINCE: (person) => localTime(person.created_at),
}

const PASSKEYS: Columns<PasskeyJson> = {
  SITE: ({ site }) => site,
  'MADE IN': ({ label }) => label,
  ADDED: (passkey) => localTime(passkey.created_at),
  'LAST USED': ({ used_at: usedAt }) => (usedAt === null ? '' : localTime(usedAt)),
}

const SESSIONS: Columns<SessionJson> = {
  ID: ({ id }) => id,
  WHO: ({ person, key_id: keyId }) => person?.name ?? keyId ?? '',
  FROM: ({ address }) => address,
  OPENED: (session) => localTime(session.created_at),
  'LAST USED': (session) => localTime(session.used_at),
}
