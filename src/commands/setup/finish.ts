/**
 * What `sternpost setup` ends with, once the server runs: whether the certificate is there, a link to the console, each
 * record of the first domain as it is found in the DNS, and the first mail as curl. What cannot be had now is said, and
 * is no failure: whatever ends a wait, a signal or the server, all the rest is told. An answer that comes
 * after a signal is not.
 */
import { certificatesSchema, type CertificateJson } from '../../api/server.ts'
import { domainSchema, type DomainJson } from '../../api/domain.ts'
import { ipSchema } from '../../api/ip.ts'
import { loginLinkSchema } from '../../api/people.ts'
import { MINUTE, SECOND, systemClock, toUnixSeconds } from '../../base/clock.ts'
import { ProcessExit } from '../../base/errors.ts'
import { shellWord } from '../../base/shell-word.ts'
import type { ServerSettings } from '../../config/settings/server-settings.ts'
import { waitUntilVerified } from '../sending/domain.ts'
import { ask, askAll } from '../shared/api-client.ts'
import { commandText } from '../shared/command-text.ts'
import type { ServerAddress, ServerFlags } from '../shared/server-address.ts'
import { localTime } from '../shared/text.ts'
import { pause } from '../shared/verb.ts'
import type { SetupNotes } from './report.ts'

export interface SetupEnding {
  withConsole: boolean
  /** For the DNS records; 0: they are not asked for. */
  waitMilliseconds: number
}

interface Finishing {
  server: ServerAddress
  /** Flags that lead a printed command to it. */
  given: ServerFlags
  settings: ServerSettings
  /** Sending domain; null: there is none yet. */
  domain: string | null
  /** API key that was made now; null: there is one already. */
  key: string | null
  ending: SetupEnding
  notes: SetupNotes
  /** Nothing is waited for any more. */
  ended: AbortSignal
}

/** An authority takes seconds, some of them half a minute. */
const MOST_CERTIFICATE_WAIT = 1.5 * MINUTE
const LOOK_EVERY = SECOND / 2

export async function finish(finishing: Finishing) {
  const { server, given, settings, domain, key, ending, notes, ended } = finishing
  // Before the long waits: it is told though a signal ends them.
  const cold = domain === null ? null : await untilEnded(finishing, coldIps(server))
  const isOrdered = settings.tls.acme !== null && !ended.aborted
  if (isOrdered) notes.say(`waiting   for the certificate of ${settings.hostname}, at most 90 s`)
  const certificate = isOrdered ? await untilEnded(finishing, awaitCertificate(finishing)) : null
  if (certificate !== null) notes.say(certificateText(certificate, given))
  const isWanted = ending.withConsole && !ended.aborted
  const console = isWanted ? await untilEnded(finishing, consoleLink(server)) : null
  if (console !== null) notes.sayKey('console   opens once, within 15 minutes: ', console)
  const seen = domain === null || ending.waitMilliseconds === 0 ? null : await watchRecords(finishing, domain)
  const curl = domain === null ? null : firstMail(settings, domain, certificate?.ends_at != null)
  if (curl !== null) {
    notes.say(`\nThe first mail${seen === 'verified' ? '' : `, once ${domain} is verified`}:\n`)
    for (const ip of cold ?? []) notes.say(commandText(given, { verb: 'ip warmup start', arguments: [ip] }))
    if (key !== null) notes.sayKey('KEY=', key)
    notes.say(curl)
  }
  return { certificate, console, domain_status: seen, curl }
}

/** null: it was ended, or the server did not say, which is told. */
async function untilEnded<Value>(finishing: Finishing, asked: Promise<Value>): Promise<Value | null> {
  const { ended } = finishing
  const { promise: isEnded, resolve } = Promise.withResolvers<null>()
  const end = (): void => resolve(null)
  if (ended.aborted) end()
  ended.addEventListener('abort', end)
  try {
    return await Promise.race([untilTold(finishing, asked), isEnded])
  } finally {
    ended.removeEventListener('abort', end)
  }
}

/** null: the server did not say, and why is told. */
async function untilTold<Value>({ ended, notes }: Finishing, asked: Promise<Value>): Promise<Value | null> {
  try {
    return await asked
  } catch (thrown) {
    if (!(thrown instanceof ProcessExit)) throw thrown
    if (!ended.aborted) notes.say(`warning: ${thrown.message}`)
    return null
  }
}

/** As it is when it is there, when something went wrong, or when the time is over; null: it is not known. */
async function awaitCertificate({ server, settings, ended }: Finishing): Promise<CertificateJson | null> {
  const { hostname } = settings
  const end = systemClock.now() + MOST_CERTIFICATE_WAIT
  for (;;) {
    const { certificates } = await ask(server, certificatesSchema, 'GET /v1/admin/certificates')
    const found = certificates.find(({ names }) => names.includes(hostname)) ?? null
    const isOver = found === null || found.ends_at !== null || found.problem !== null
    if (isOver || ended.aborted || systemClock.now() > end) return found
    await pause(systemClock, LOOK_EVERY, ended)
  }
}

function certificateText(
  { name, ends_at: endsAt, authority, problem, fix, next_try_at: next }: CertificateJson,
  given: ServerFlags,
): string {
  if (endsAt !== null)
    return `there     certificate for ${name} by ${authority}, until ${localTime(endsAt)}; renewed by itself`
  if (problem === null) {
    const list = commandText(given, { verb: 'certificate list' })
    return `ordered   certificate for ${name}; whether it is there: ${list}`
  }
  const todo = fix === null ? '' : `. Fix: ${fix}`
  const now = commandText(given, { verb: 'certificate renew', arguments: [name] })
  const again = next === null ? '' : `. It is tried again at ${localTime(next)}, or, once mended, by: ${now}`
  return `warning: no certificate for ${name} yet: ${problem}${todo}${again}`
}

/** null: there is no console, or nobody may make a link. */
async function consoleLink(server: ServerAddress): Promise<string | null> {
  const body = { name: process.env['SUDO_USER'] ?? process.env['USER'] ?? 'owner', role: null }
  try {
    return (await ask(server, loginLinkSchema, 'POST /v1/admin/people', body)).url
  } catch (thrown) {
    if (thrown instanceof ProcessExit) return null
    throw thrown
  }
}

/** Says each record when it is found; the state of the domain as it was seen last, or null. */
async function watchRecords(finishing: Finishing, domain: string): Promise<DomainJson['status'] | null> {
  const { server, ending, notes, ended } = finishing
  if (ended.aborted) return null
  notes.say(`\nLooking for the records of ${domain} in the DNS (Ctrl-C: it goes on looking without you):\n`)
  const known = new Set<string>()
  let last: DomainJson['status'] | null = null
  const tick = (seen: DomainJson): void => {
    if (ended.aborted) return
    last = seen.status
    for (const { name, purpose, type, status } of seen.records) {
      if (status !== 'verified' || known.has(`${type} ${name}`)) continue
      known.add(`${type} ${name}`)
      notes.say(`  ✔ ${localTime(toUnixSeconds(systemClock.now()))}  ${purpose}  ${name}`)
    }
  }
  const path = `/v1/domains/${encodeURIComponent(domain)}/verify` as const
  const watching = waitUntilVerified({
    clock: systemClock,
    mostMilliseconds: ending.waitMilliseconds,
    verify: () => ask(server, domainSchema, `POST ${path}`),
    onCheck: tick,
    ended,
  })
  const found = await untilEnded(finishing, watching)
  if (found !== null) tick(found)
  if (last !== null) notes.say(`\n${domain} is ${last}`)
  return last
}

/** Nothing leaves from them until their warmup begins. */
async function coldIps(server: ServerAddress): Promise<string[]> {
  const ips = await askAll(server, ipSchema, '/v1/ips')
  return ips.filter(({ status }) => status === 'cold').map(({ ip }) => ip)
}

/** For a shell that has the key in KEY. */
function firstMail({ public_url: url, operator }: ServerSettings, domain: string, isTrusted: boolean): string {
  const mail = { from: `hello@${domain}`, to: operator.email ?? `you@${domain}`, subject: 'It works', text: 'Hello.' }
  return [
    `curl ${isTrusted ? '' : '--insecure '}${shellWord(`${url}/v1/email/send`)} -H "Authorization: Bearer $KEY" \\`,
    `  -H 'Content-Type: application/json' -d ${shellWord(JSON.stringify(mail))}`,
  ].join('\n')
}
