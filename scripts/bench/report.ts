/**
 * What was measured, as tables on standard output.
 */
import type { AcceptRow } from './accept.ts'
import type { ConsoleFigures } from './console.ts'
import type { GrowthFigures } from './growth.ts'
import type { LatencyFigures } from './latency.ts'
import type { LookupRow } from './lookups.ts'
import type { ProfileFigures } from './profile.ts'
import { print, printTable } from './table.ts'
import type { Comparison } from './whole-way.ts'

/** As `system.ts` names them. */
const TOOLS: readonly string[] = ['sink', 'load and check']

export function printComparison(title: string, { rows, cpu, signaturesVerified, missing }: Comparison): void {
  print(title)
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((name) => name !== 'size')
  const ratio = (row: Comparison['rows'][number], name: string): string => {
    const [ours, theirs] = [Number(row['sternpost'] ?? row['sternpost_batch']), row[name]]
    return typeof theirs === 'number' ? (ours / theirs).toFixed(2) : '-'
  }
  const cpuOf = (size: string, name: string): Record<string, number> =>
    cpu.find((each) => each.size === size && each.system === name)?.milliseconds ?? {}
  // Of the system, with a milter of its own; not of the sink and the load generator.
  const ownCpu = (size: string, name: string): string => {
    const own = Object.entries(cpuOf(size, name)).filter(([process]) => !TOOLS.includes(process))
    return own.length === 0 ? '-' : own.reduce((sum, [, value]) => sum + value, 0).toFixed(2)
  }
  printTable(
    ['', ...rows.flatMap(({ size }) => [size, 'ours : theirs', 'CPU ms'])],
    names.map((name) => [
      name,
      ...rows.flatMap((row) => [row[name] ?? null, ratio(row, name), ownCpu(row.size, name)]),
    ]),
  )
  const tools = cpu.map(
    ({ size, system }) => `${system} ${size} ` + TOOLS.map((tool) => cpuOf(size, system)[tool] ?? 0).join(' + '),
  )
  print(`CPU ms a message of ${TOOLS.join(' + ')} beside them: ${tools.join(', ')}`)
  const verified = Object.entries(signaturesVerified)
    .map(([name, count]) => `${name} ${count}`)
    .join(', ')
  print(`signatures verified by mailauth, one in each message: ${verified}`)
  print('synchronous=FULL, read back; each message with its event and webhook row, counted')
  for (const [name, reason] of Object.entries(missing)) print(`${name}: ${reason}`)
  print('')
}

export function printAccept(rows: readonly AcceptRow[]): void {
  print('acceptance alone, 10 KB html; synchronous=FULL, read back')
  printTable(
    ['', 'clients', 'msg/s', 'CPU ms', 'p50 ms', 'p99 ms', 'msg/commit'],
    rows.map((row) => [
      row.what,
      row.clients,
      row.perSecond,
      row.cpuMilliseconds,
      row.p50Milliseconds,
      row.p99Milliseconds,
      Number.isNaN(row.messagesPerCommit) ? null : row.messagesPerCommit,
    ]),
  )
  const [ours, bare] = ['durable accept', 'bare Koa POST'].map((what) => rows.find((row) => row.what === what))
  if (ours !== undefined && bare !== undefined) {
    print(`durable accept is ${Math.round((100 * ours.perSecond) / bare.perSecond)} % of a bare Koa POST\n`)
  }
}

/** One row for each figure. */
export function printFigures(what: string, figures: object): void {
  printTable(
    [what, ''],
    Object.entries(figures).map(([name, value]) => [inWords(name), String(value)]),
  )
}

export function printLookups(rows: readonly LookupRow[]): void {
  printTable(
    ['lookups', 'stored', 'CPU ms', 'p50 ms'],
    rows.map((row) => [row.what, row.stored, row.cpuMilliseconds, row.p50Milliseconds]),
  )
}

export function printLatency(figures: LatencyFigures): void {
  const { roundTripMilliseconds, sternpost, postfix, connections, held, chunking, heldInFlight } = figures
  print(`round trip of ${roundTripMilliseconds} ms, messages per second and connection`)
  printTable(
    ['', 'msg/s', 'connections at work', 'ours : theirs'],
    [
      ['sternpost', sternpost, connections.sternpost, null],
      ['postfix', postfix, connections.postfix, (sternpost / postfix).toFixed(2)],
      ...chunking.map((flown) => [
        `sternpost, CHUNKING, ${flown.inFlight} in flight`,
        flown.sternpost,
        flown.connections,
        (flown.sternpost / postfix).toFixed(2),
      ]),
    ],
  )
  printHeld('held at once', held)
  printHeld('held at once, CHUNKING', heldInFlight)
}

function printHeld(what: string, { connections, allowed, destinations, megabytes }: LatencyFigures['held']): void {
  print(`${what}: ${connections} of ${allowed} connections to ${destinations} destinations, peak ${megabytes} MB\n`)
}

export function printGrowth({ store, serve, choosing }: GrowthFigures): void {
  print('CPU of the store thread, microseconds for a message')
  printTable(
    ['queued', 'destinations', 'IPs', 'accept', 'claim', 'record', 'ratio', 'file MB'],
    store.map((row) => [
      row.queued,
      row.destinations,
      row.ips,
      row.acceptMicroseconds,
      row.claimMicroseconds,
      row.recordMicroseconds,
      row.recordRatio.toFixed(2),
      row.fileMegabytes,
    ]),
  )
  printFigures('the server', serve)
  printFigures('choosing an IP and a slot', choosing)
}

export function printConsole({ stored, paints, ...figures }: ConsoleFigures): void {
  printTable(
    ['console', 'until painted, ms'],
    paints.map(({ what, milliseconds }) => [what, milliseconds]),
  )
  printFigures(`beside ${stored} messages`, figures)
}

export function printProfile({ messages, stages, threads, functions }: ProfileFigures): void {
  print(`CPU of the whole way, 10 KB, milliseconds for a message of ${messages}`)
  const whole = Object.values(stages).reduce((sum, value) => sum + value, 0)
  printTable(['stage', 'ms'], [...Object.entries(stages), ['sum', whole.toPrecision(3)]])
  printTable(['thread', 'ms'], Object.entries(threads))
  for (const [thread, rows] of Object.entries(functions)) {
    printTable(
      [`${thread} thread`, 'us'],
      rows.map(({ name, microseconds }) => [name, microseconds]),
    )
  }
}

/** `perSecond` as `per second`. */
function inWords(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`) // capitals inside a name
}
