/**
 * npm run bench: what a message costs, measured on the real server over real HTTP, SQLite and SMTP, beside its peers.
 *
 * | part     | what                                                                                             |
 * | -------- | ------------------------------------------------------------------------------------------------ |
 * | whole    | HTTP POST to Postfix's smtp-sink, signed, with outcome, event and webhook rows; peers in turns   |
 * | batch    | the same with 1,000 recipients a request, beside Postfix with OpenDKIM                           |
 * | engines  | the whole way on SQLite and on PostgreSQL                                                        |
 * | accept   | HTTP POST to the commit, 1 and 50 clients, batches; beside a bare Koa that stores nothing        |
 * | delivery | queue to sink: messages accepted before and due at one moment                                    |
 * | clicks   | tracked links that redirect                                                                      |
 * | lookups  | by id and by recipient, beside few and many stored messages                                      |
 * | latency  | a round trip of 50 ms: messages per second and connection, 1,000 connections at once             |
 * | growth   | cost of accept, claim and record from 10,000 to 1,000,000 rows; memory, restart, choosing an IP  |
 * | console  | its screens in Chromium, its bytes, and what open pages cost everybody else                      |
 * | profile  | CPU of each stage of the whole way                                                               |
 *
 * Counts are taken at the sink and in the database that was used; signatures are verified by mailauth; `synchronous` is
 * read back. The first six parts are the usual ones, `--full` is all. Installs nothing: it says what is missing and
 * ends with 69. `--help` is any option it does not know.
 */
import { generateKeyPairSync, sign } from 'node:crypto'
import { cpus } from 'node:os'
import { missingPrograms } from '../../test/support/programs.ts'
import { measureAccept } from './accept.ts'
import { CHANGED_SETTINGS } from './changed-settings.ts'
import { measureClicks } from './clicks.ts'
import { measureConsole } from './console.ts'
import { measureDelivery } from './delivery-alone.ts'
import { threeDigits } from './figures.ts'
import { measureGrowth } from './growth.ts'
import { measureLatency } from './latency.ts'
import { measureLookups } from './lookups.ts'
import { readOptions, type BenchOptions, type Part } from './options.ts'
import { measureProfile } from './profile.ts'
import {
  printAccept,
  printComparison,
  printConsole,
  printFigures,
  printGrowth,
  printLatency,
  printLookups,
  printProfile,
} from './report.ts'
import { print } from './table.ts'
import { compareBatch, compareEngines, compareWholeWay, WARM_UP, WARM_UP_OF_COMPILED } from './whole-way.ts'

/** sysexits: a service it needs is not there. */
const UNAVAILABLE = 69

const options = readOptions(process.argv.slice(2))
const missing = missingPrograms({
  'smtp-sink': ['postfix'],
  'smtp-source': ['postfix'],
  postfix: ['postfix'],
  opendkim: ['opendkim'],
})
if (missing !== false) stop(`${missing}. Fix: apt-get install postfix opendkim (their daemons need not run)`)
if (process.getuid?.() !== 0) stop('needs root: Postfix does not start without')

const SIGNATURES = 300

const document: Record<string, unknown> = {
  date: new Date().toISOString(),
  machine: `${cpus().length} x ${cpus()[0]?.model ?? 'unknown'}, Node ${process.version}`,
  command: `npm run bench -- ${process.argv.slice(2).join(' ')}`.trim(),
  changed_settings: CHANGED_SETTINGS,
  warm_up_messages: { javascript: WARM_UP, compiled: WARM_UP_OF_COMPILED },
  rsa_2048_signature_milliseconds: signatureCost(),
}
say(
  `${String(document['machine'])}; ${String(document['date'])}; an RSA-2048 signature costs ` +
    `${String(document['rsa_2048_signature_milliseconds'])} ms of CPU now`,
)
say(`changed from the defaults: ${JSON.stringify(CHANGED_SETTINGS)}`)
say(
  `whole way and batch: systems in JavaScript take ${WARM_UP} messages first that are not counted, compiled ones ` +
    `${WARM_UP_OF_COMPILED}\n`,
)
/** By part. */
const seconds: Record<string, number> = {}
await runParts(options)
document['seconds'] = seconds
say(
  `took: ${Object.entries(seconds)
    .map(([name, value]) => `${name} ${value} s`)
    .join(', ')}; in all ` + `${Object.values(seconds).reduce((sum, value) => sum + value, 0)} s`,
)
if (options.isJson) print(JSON.stringify(document))

async function runParts(wanted: BenchOptions): Promise<void> {
  await part(
    'whole',
    () => compareWholeWay(wanted),
    (result) => {
      document['whole_way'] = result.rows
      document['cpu_milliseconds'] = result.cpu
      document['runs'] = result.runs
      document['signatures_verified'] = result.signaturesVerified
      document['missing'] = result.missing
      if (!wanted.isJson) printComparison('the whole way, messages per second', result)
    },
  )
  await part(
    'batch',
    () => compareBatch(wanted),
    (result) => {
      document['batch'] = result.rows
      if (!wanted.isJson) printComparison('batches of 1,000, messages per second', result)
    },
  )
  await part(
    'engines',
    () => compareEngines(wanted),
    (result) => {
      document['engines'] = result.rows
      if (!wanted.isJson) printComparison('both engines, messages per second', result)
    },
  )
  await part(
    'accept',
    () => measureAccept(wanted),
    (result) => {
      document['accept'] = result
      if (!wanted.isJson) printAccept(result)
    },
  )
  await part(
    'delivery',
    () => measureDelivery(wanted),
    (result) => {
      document['delivery'] = result
      if (!wanted.isJson) printFigures('delivery alone', result)
    },
  )
  await part(
    'clicks',
    () => measureClicks(),
    (result) => {
      document['clicks'] = result
      if (!wanted.isJson) printFigures('clicks', result)
    },
  )
  await part(
    'lookups',
    () => measureLookups(wanted.stored),
    (result) => {
      document['lookups'] = result
      if (!wanted.isJson) printLookups(result)
    },
  )
  await part(
    'latency',
    () => measureLatency(wanted),
    (result) => {
      document['latency'] = result
      if (!wanted.isJson) printLatency(result)
    },
  )
  await part(
    'growth',
    () => measureGrowth(wanted),
    (result) => {
      document['growth'] = result
      if (!wanted.isJson) printGrowth(result)
    },
  )
  await part(
    'console',
    () => measureConsole(wanted.stored),
    (result) => {
      document['console'] = result
      if (!wanted.isJson) printConsole(result)
    },
  )
  await part(
    'profile',
    () => measureProfile(wanted),
    (result) => {
      document['profile'] = result
      if (!wanted.isJson) printProfile(result)
    },
  )
}

async function part<Result>(name: Part, measure: () => Promise<Result>, use: (result: Result) => void): Promise<void> {
  if (!options.parts.has(name)) return
  const startedAt = performance.now()
  use(await measure())
  seconds[name] = Math.round((performance.now() - startedAt) / 1_000)
}

/** The yardstick for all CPU figures: how busy the machine is changes what it calls a millisecond. */
function signatureCost(): number {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2_048 })
  const { user, system } = process.cpuUsage()
  for (let count = 0; count < SIGNATURES; count += 1) sign('sha256', Buffer.from(String(count)), privateKey)
  const after = process.cpuUsage({ user, system })
  return threeDigits((after.user + after.system) / SIGNATURES / 1_000)
}

function say(line: string): void {
  if (!options.isJson) print(line)
}

function stop(sentence: string): never {
  process.stderr.write(`bench: ${sentence}\n`)
  process.exit(UNAVAILABLE)
}
