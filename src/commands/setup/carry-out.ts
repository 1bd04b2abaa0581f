/**
 * The work of `sternpost setup`: checks, files, units, then what the running server has to know.
 *
 * A failure before the server runs takes back what this run has made. So does an interruption before the units are
 * started. What was there before stays in any case.
 */
import { globalAgent } from 'node:http'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { domainSchema } from '../../api/domain.ts'
import { createdKeySchema, keySchema } from '../../api/key.ts'
import { EXIT, errorCode } from '../../base/errors.ts'
import type { Configuration } from '../../config/load-configuration.ts'
import { checkPtr } from '../../health/checks/check-ip-names.ts'
import { checkIpPresent, checkPort25 } from '../../health/checks/check-ips.ts'
import { holderOf, ownDoors, type Door } from '../../health/checks/own-doors.ts'
import { runChecks } from '../../health/checks/check.ts'
import { worldOf } from '../server/doctor-world.ts'
import { ask, askAll, callServer, textFromServer } from '../shared/api-client.ts'
import { commandText } from '../shared/command-text.ts'
import type { ServerAddress } from '../shared/server-address.ts'
import type { SetupFiles } from './files.ts'
import { finish, type SetupEnding } from './finish.ts'
import { report, type Introduced, type SetupNotes, type SetupResult } from './report.ts'
import { isAnswering, serverOf, startUnits, type Systemd } from './units.ts'

interface Work {
  folder: string
  files: SetupFiles
  notes: SetupNotes
  /** Warnings: what was asked for, and stays as it is. */
  unheard: readonly string[]
  domain: string | null
  systemd: Systemd
  ending: SetupEnding
}

export async function carryOut(work: Work) {
  const { folder, files, notes, domain, systemd } = work
  const { configuration } = files
  const { hostname, listen } = configuration.server
  const address: ServerAddress = { kind: 'socket', socketPath: listen.admin_socket }
  let server: SetupResult['server']
  let warnings: string[]
  try {
    const isRunning = await isAnswering(address)
    warnings = await putInPlace(work, isRunning)
    if (!systemd.serves(folder)) server = isRunning ? 'running' : 'not started'
    else server = (await startUnits(address, systemd)) ? 'started' : 'running'
  } catch (thrown) {
    const removed = files.remove()
    if (removed.length > 0) notes.say(`took back ${removed.join(', ')}`)
    throw thrown
  }
  notes.say(SERVER_WORDS[server])
  const inServer = server === 'not started' ? null : await introduce(address, { folder, hostname, domain }, notes)
  const { added, kept } = files
  const result = report({ folder, configuration, warnings, files: { added, kept }, server, inServer, domain }, notes)
  const ended =
    inServer === null ? null : await untilSignal(notes, (ended) => finish({ ...finishing(work, inServer), ended }))
  if (ended?.domain_status !== 'verified') notes.say(`\nNext:  ${result.next}`)
  return { ...result, ...ended }
}

function finishing({ folder, files, ending, notes }: Work, inServer: Introduced) {
  const { server: settings } = files.configuration
  return {
    server: { kind: 'socket', socketPath: settings.listen.admin_socket } as const,
    given: serverOf(folder),
    settings,
    domain: inServer.domain?.view.domain ?? null,
    key: inServer.key,
    ending,
    notes,
  }
}

/**
 * All is done by now but to wait: a signal ends the waits, not the process, which would take the key with it. A second
 * one ends the process, once the notes are written.
 */
async function untilSignal<Result>(notes: SetupNotes, run: (ended: AbortSignal) => Promise<Result>): Promise<Result> {
  const ending = new AbortController()
  const end = (): void => {
    if (!ending.signal.aborted) return ending.abort()
    notes.close()
    process.exit(EXIT.interrupted)
  }
  for (const signal of SIGNALS) process.on(signal, end)
  try {
    return await run(ending.signal)
  } finally {
    for (const signal of SIGNALS) process.off(signal, end)
    // What the server was still asked would keep the process for a minute.
    if (ending.signal.aborted) globalAgent.destroy()
  }
}

const SERVER_WORDS: Readonly<Record<SetupResult['server'], string>> = {
  started: 'started   sternpost.socket, sternpost.service',
  running: 'running   the server answers already',
  'not started': 'systemd does not run here: the server is not started',
}

/** Returns what was warned of. */
async function putInPlace({ folder, files, notes, unheard }: Work, isRunning: boolean): Promise<string[]> {
  const { configuration, kept, added } = files
  const onInterruption = (): void => {
    files.remove()
    notes.say('interrupted: nothing was changed')
    notes.close()
    process.exit(EXIT.interrupted)
  }
  for (const signal of SIGNALS) process.once(signal, onInterruption)
  try {
    const warnings = [...(await firstChecks(folder, configuration, isRunning)), ...unheard]
    for (const warning of warnings) notes.say(`warning: ${warning}`)
    files.commit()
    for (const path of kept) notes.say(`kept      ${join(folder, path)}`)
    for (const path of added) notes.say(`wrote     ${join(folder, path)}`)
    return warnings
  } finally {
    for (const signal of SIGNALS) process.off(signal, onInterruption)
  }
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/**
 * What can be looked at before the DNS records exist: free ports, reverse names, outbound port 25. All are warnings. No
 * record that is about to be created is asked for: resolvers would remember that it is not there.
 */
async function firstChecks(folder: string, configuration: Configuration, isRunning: boolean): Promise<string[]> {
  const world = worldOf(folder, configuration, {})
  const [found, taken] = await Promise.all([
    runChecks([checkIpPresent, checkPtr, checkPort25], world),
    // The ports of a server that runs are its own.
    isRunning ? [] : takenPorts(ownDoors(configuration.server)),
  ])
  const troubled = found.filter(({ result }) => result === 'warn' || result === 'fail')
  const warnings = troubled.map(
    ({ check, subject, seen, fix }) => `${check}: ${subject ?? ''} ${seen}${fix === null ? '' : `. Fix: ${fix}`}`,
  )
  return [...taken, ...warnings]
}

async function takenPorts(doors: readonly Door[]): Promise<string[]> {
  const found = await Promise.all(
    doors.map(async ({ port, address, setting }) => {
      if (!(await isTaken(port, address))) return []
      const holder = await holderOf(port)
      // A socket unit of ours, or somebody whom only root can see.
      if (holder === null) return []
      return [`${setting}: port ${port} is taken by ${holder}. Fix: stop what holds it, or choose another port`]
    }),
  )
  return found.flat()
}

/** By anybody whose address it shares. */
function isTaken(port: number, address: string): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', (error) => resolve(errorCode(error) === 'EADDRINUSE'))
    const where = address === '*' ? { port } : { port, host: address }
    server.listen({ ...where, exclusive: true }, () => server.close(() => resolve(false)))
  })
}

const KEY_NAME = 'setup'

/** The first domain and the first key, over the admin socket of the server that now runs. What is there stays. */
async function introduce(
  server: ServerAddress,
  { folder, hostname, domain }: { folder: string; hostname: string; domain: string | null },
  notes: SetupNotes,
): Promise<Introduced> {
  const keys = await askAll(server, keySchema, '/v1/keys')
  const added = domain === null ? null : await addDomain(server, domain, hostname)
  if (added !== null) notes.say(`${added.isNew ? 'added     ' : 'kept      '}domain ${domain}`)
  if (keys.some(({ revoked_at: revokedAt }) => revokedAt === null)) {
    const create = commandText(serverOf(folder), { verb: 'key create', options: { name: 'shop' } })
    notes.say(`kept      the API keys; another one: ${create}`)
    return { domain: added, key: null }
  }
  const body = { name: KEY_NAME, mode: 'live', scopes: ['send'], domains: [], allowed_ips: [], expires_at: null }
  const made = await ask(server, createdKeySchema, 'POST /v1/keys', body)
  return { domain: added, key: made.key ?? null }
}

async function addDomain(server: ServerAddress, domain: string, hostname: string): Promise<Introduced['domain']> {
  const path = `/v1/domains/${encodeURIComponent(domain)}` as const
  const known = await askAll(server, domainSchema, '/v1/domains', { status: 'all' })
  const isNew = !known.some((each) => each.domain === domain)
  // So that alerts can come from the name of the server.
  const body = { domain, allow_subdomains: hostname.endsWith(`.${domain}`) }
  if (isNew) await callServer(server, 'POST /v1/domains', { body })
  const view = await ask(server, domainSchema, `GET ${path}`)
  return { view, isNew, zone: await textFromServer(server, `${path}/zonefile`) }
}
