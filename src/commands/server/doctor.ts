/**
 * `sternpost doctor`: runs the checks and says what was seen, why it matters and what to do (health/README.md
 * "Checks").
 *
 * The running server is asked for what only it knows; what only means something from outside is looked at here, and all
 * that can be where no server answers. Ends with 0, 1 with warnings alone, 2 with a failure; --strict: or a warning.
 */
import type { Command } from 'commander'
import { domainSchema } from '../../api/domain.ts'
import { checksSchema, type ChecksJson } from '../../api/health.ts'
import { certificatesSchema } from '../../api/server.ts'
import { SECOND } from '../../base/clock.ts'
import { EXIT, ProcessExit, ServiceError } from '../../base/errors.ts'
import type { ServerSettings } from '../../config/settings/server-settings.ts'
import { CHECK_IDS } from '../../health/checks/check-table.ts'
import { runChecks, type HealthFinding, type Result } from '../../health/checks/check.ts'
import type { CheckWorld } from '../../health/checks/world.ts'
import { chooseChecks } from '../../health/health-keeper.ts'
import { feedbackLoops, inboundTls, port25Ticket } from '../../health/operator-texts.ts'
import { ask, askAll, unlessExit } from '../shared/api-client.ts'
import { serverWords } from '../shared/command-text.ts'
import { misuse } from '../shared/flag-values.ts'
import { printNote, printResult } from '../shared/print.ts'
import { countOf, obeysEscapes, printable } from '../shared/text.ts'
import { serverAddress, type ServerAddress } from '../shared/server-address.ts'
import { addVerb, type Given, type VerbFlags } from '../shared/verb.ts'
import { localWorld, type LocalWorld } from './doctor-world.ts'

type DoctorFlags = VerbFlags & Given<'ip' | 'domain' | 'ticket'> & { strict?: boolean }

type DoctorFinding = ChecksJson['checks'][number]

export interface DoctorReport {
  /** running: it answered. absent: nothing that only it knows is in here. */
  server: 'running' | 'absent'
  duration_ms: number
  summary: Record<Result, number>
  checks: DoctorFinding[]
  /** Of `--ticket`, of `doctor feedback` and of `doctor tls`; else null. */
  text: string | null
}

export function addDoctorCommand(program: Command): void {
  const description = `look for what is wrong, and say what to do (checks: ${CHECK_IDS.join(', ')})`
  addVerb(program, 'doctor [checks...]', description, '\nport25 ptr --ip 203.0.113.10\n--ticket port25')
    .option('--ip <ip>', 'only this egress IP')
    .option('--domain <name>', 'only this sending domain')
    .option('--strict', 'a warning counts as a failure')
    .option('--ticket <check>', 'print a text for the hosting provider: port25')
    .action(doctor)
}

const DOCTOR_FAILED = 2
const FEEDBACK = 'feedback'
const TLS = 'tls'
const PORT25 = 'port25'
const ABSENT =
  'No server answers here: only what can be seen without it was looked at. ' +
  'Start it: systemctl start sternpost (installed), or sternpost serve'

async function doctor(ids: string[], flags: DoctorFlags): Promise<void> {
  const isTicket = flags.ticket !== undefined
  if (isTicket && flags.ticket !== PORT25) throw misuse(`--ticket: there is a text for ${PORT25} alone`)
  const address = addressOf(flags)
  const isElsewhere = address !== null && address.kind !== 'socket'
  if (isTicket && isElsewhere) throw misuse('--ticket: run it on the server itself')
  const asked = isTicket ? [PORT25] : ids
  const chosen = chosenChecks(asked)
  const startedAt = performance.now()
  // The files and the network of this machine say nothing of another one.
  const local = isElsewhere ? null : localWorld(flags)
  const inServer = await askServer(address, flags, asked)
  const here = local === null ? [] : await runHere(local, chosen, inServer !== null)
  const order = new Map(CHECK_IDS.map((id, index) => [id, index]))
  const place = ({ check }: HealthFinding): number => order.get(check) ?? order.get('domain') ?? 0
  const checks = [...(inServer ?? []), ...here].toSorted((left, right) => place(left) - place(right))
  const report: DoctorReport = {
    server: inServer === null ? 'absent' : 'running',
    duration_ms: Math.round(performance.now() - startedAt),
    summary: summaryOf(checks),
    checks,
    text: await textOf(flags, { asked, checks, address, world: local?.world ?? null }),
  }
  const screen = { hasColours: obeysEscapes() && process.env['NO_COLOR'] === undefined, showsAll: ids.length > 0 }
  printResult(flags, report, () => (report.text !== null && isTicket ? report.text : doctorText(report, screen)))
  if (inServer === null) printNote(flags, ABSENT)
  else if (!isTicket && report.summary.warn + report.summary.fail > 0) tellOfServer(flags)
  if (!isTicket) process.exitCode = exitCodeOf(report.summary, flags.strict === true)
  else if (checks.every(({ check, result }) => check !== PORT25 || result !== 'fail')) {
    printNote(flags, 'Port 25 is not seen to be blocked now: look before you send this.')
  }
}

/** The advice is that of the server, which does not know by which flags it was found. */
function tellOfServer(flags: DoctorFlags): void {
  const words = serverWords(flags)
  if (words !== '') printNote(flags, `To the sternpost commands above add, for the server that was asked: ${words}`)
}

function chosenChecks(asked: readonly string[]): ReturnType<typeof chooseChecks> {
  try {
    return chooseChecks(asked.length === 0 ? null : asked)
  } catch (thrown) {
    throw thrown instanceof ServiceError ? misuse(thrown.details) : thrown
  }
}

/** null: no server answers. */
async function askServer(
  address: ServerAddress | null,
  flags: DoctorFlags,
  checks: readonly string[],
): Promise<DoctorFinding[] | null> {
  if (address === null) return null
  const body = { ...(checks.length === 0 ? {} : { checks }), ip: flags.ip, domain: flags.domain }
  const run = (): Promise<ChecksJson> => ask(address, checksSchema, 'POST /v1/admin/checks', body)
  const answer = address.kind === 'socket' ? await unlessExit(EXIT.unreachable, run) : await run()
  return answer?.checks ?? null
}

/** null: the files do not say where it is; the check `config` says what is wrong with them. */
function addressOf(flags: DoctorFlags): ServerAddress | null {
  try {
    return serverAddress(flags)
  } catch (thrown) {
    if (thrown instanceof ProcessExit) throw thrown
    return null
  }
}

async function runHere(
  local: LocalWorld,
  chosen: ReturnType<typeof chooseChecks>,
  isServerThere: boolean,
): Promise<DoctorFinding[]> {
  const wanted = chosen.filter(({ place }) => place === 'outside' || !isServerThere)
  // The server reads the same files, and has said what is wrong with them.
  const toldOfFiles = isServerThere ? [] : local.findings
  const findings = local.world === null ? toldOfFiles : await runChecks(wanted, local.world)
  return findings.map((finding) => ({ ...finding, last_ok_at: null }))
}

function summaryOf(checks: readonly HealthFinding[]): Record<Result, number> {
  const count = (wanted: Result): number => checks.filter(({ result }) => result === wanted).length
  return { ok: count('ok'), warn: count('warn'), fail: count('fail'), skip: count('skip') }
}

interface TextFacts {
  asked: readonly string[]
  checks: readonly HealthFinding[]
  address: ServerAddress | null
  world: CheckWorld | null
}

async function textOf(flags: DoctorFlags, { asked, checks, address, world }: TextFacts): Promise<string | null> {
  if (world === null) return null
  const { server } = world.configuration
  if (flags.ticket === PORT25) {
    const failed = checks.filter(({ check, result }) => check === PORT25 && result === 'fail')
    return port25Ticket({
      hostname: server.hostname,
      ips: world.ips,
      operator: server.operator.email,
      seen: failed.map(({ subject, seen }) => ({ address: subject ?? '', seen })),
    })
  }
  if (asked.includes(TLS)) return inboundTls(await inboundFacts(address, server))
  if (!asked.includes(FEEDBACK)) return null
  return feedbackLoops({
    complaintAddress: server.inbound.complaint_address,
    ips: world.ips.map(({ address }) => address),
    domains: address === null ? [] : await sendingDomains(address),
    platformDomain: server.domains.dkim.platform_domain,
  })
}

async function inboundFacts(
  address: ServerAddress | null,
  { hostname, domains }: ServerSettings,
): Promise<Parameters<typeof inboundTls>[0]> {
  const answer =
    address === null
      ? null
      : await unlessExit(EXIT.unreachable, () => ask(address, certificatesSchema, 'GET /v1/admin/certificates'))
  const found = answer?.certificates.find(({ names }) => names.includes(hostname))
  const certificate =
    found === undefined ? null : { tlsa: found.tlsa, keepsKey: found.keeps_key, isOfAuthority: found.source === 'acme' }
  return { hostname, domains: [hostname, domains.targets.return_path], certificate }
}

/** Empty without a server. */
async function sendingDomains(address: ServerAddress): Promise<string[]> {
  const query = { status: 'verified' }
  const found = await unlessExit(EXIT.unreachable, () => askAll(address, domainSchema, '/v1/domains', query))
  return (found ?? []).map(({ domain }) => domain)
}

function exitCodeOf({ fail, warn }: Record<Result, number>, isStrict: boolean): number {
  if (fail > 0 || (isStrict && warn > 0)) return DOCTOR_FAILED
  return warn > 0 ? EXIT.failed : EXIT.done
}

const MARKS: Readonly<Record<Result, string>> = { ok: '✔', warn: '⚠', fail: '✖', skip: '-' }
const ORDER: readonly Result[] = ['fail', 'warn', 'skip', 'ok']
/** ANSI: red, yellow, grey, green. */
const COLOURS: Readonly<Record<Result, string>> = { fail: '31', warn: '33', skip: '90', ok: '32' }
/** Mark, and the spaces around the name of the check. */
const INDENT = 4

interface DoctorScreen {
  hasColours: boolean
  /** Also what is well. */
  showsAll: boolean
}

/** For people: what is wrong, with its fix, and a count of the rest. */
function doctorText(report: DoctorReport, screen: DoctorScreen): string {
  const { checks, summary, duration_ms: duration, text } = report
  const shown = ORDER.flatMap((result) => checks.filter((finding) => finding.result === result)).filter(
    ({ result }) => screen.showsAll || result === 'fail' || result === 'warn',
  )
  const width = Math.max(0, ...shown.map(({ check }) => check.length))
  const skipped = summary.skip === 0 ? '' : `, ${summary.skip} skipped`
  const counts = `${summary.ok} ok, ${countOf(summary.warn, 'warning')}, ${countOf(summary.fail, 'failure')}${skipped}`
  return [
    ...groupsOf(shown).flatMap((group) => linesOf(group, width, screen)),
    `${counts} (${(duration / SECOND).toFixed(1)} s)`,
    ...(text === null ? [] : ['', text.trimEnd()]),
    '',
  ].join('\n')
}

/** What follows each other with the same fix is shown with it once. */
function groupsOf(findings: readonly HealthFinding[]): HealthFinding[][] {
  const groups: HealthFinding[][] = []
  for (const finding of findings) {
    const last = groups.at(-1)?.[0]
    const isSame = last?.check === finding.check && last.result === finding.result && last.fix === finding.fix
    if (isSame) groups.at(-1)?.push(finding)
    else groups.push([finding])
  }
  return groups
}

function linesOf(group: readonly HealthFinding[], width: number, { hasColours }: DoctorScreen): string[] {
  const heads = group.map(({ result, check, subject, seen }) => {
    const mark = hasColours ? `\u001b[${COLOURS[result]}m${MARKS[result]}\u001b[0m` : MARKS[result]
    return `${mark} ${check.padEnd(width)}  ${printable(subject === null ? seen : `${subject}  ${seen}`)}`
  })
  const advice = group.slice(0, 1).flatMap(({ result, why, fix }) => {
    if (result === 'ok' || result === 'skip') return []
    return fix === null ? [why] : [why, `Fix: ${fix}`]
  })
  return [...heads, ...advice.map((line) => `${' '.repeat(width + INDENT)}${printable(line)}`)]
}
