/**
 * What was measured, as tables on standard output.
 */
import type { AcceptRow } from './accept.ts'
import type { GrowthFigures } from './growth.ts'
import type { LatencyFigures } from './latency.ts'
import type { ProfileFigures } from './profile.ts'
import { print, printTable } from './table.ts'
import type { Comparison } from './whole-way.ts'

export function printComparison(title: string, { rows, cpu, signaturesVerified, missing }: Comparison): void {
  print(title)
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((name) => name !== 'size')
  const ratio = (row: Comparison['rows'][number], name: string): string => {
    const [ours, theirs] = [Number(row['posthorn'] ?? row['posthorn_batch']), row[name]]
    return typeof theirs === 'number' ? (ours / theirs).toFixed(2) : '-'
  }
  const heads = rows.flatMap(({ size }) => [size, `ours : theirs`])
  printTable(['', ...heads], names.map((name) => (
    [name, ...rows.flatMap((row) => [row[name] ?? null, ratio(row, name)])])))
  print('CPU, milliseconds for a message')
  printTable(['', 'size', 'by process'], cpu.map(({ size, system, milliseconds }) => [system, size,
    Object.entries(milliseconds).map(([name, value]) => `${name} ${value}`).join(', ')]))
  const verified = Object.entries(signaturesVerified).map(([name, count]) => `${name} ${count}`).join(', ')
  print(`signatures verified by mailauth, one in each message: ${verified}`)
  print('synchronous=FULL, read back; each message with its event and webhook row, counted')
  for (const [name, reason] of Object.entries(missing)) print(`${name}: ${reason}`)
  print('')
}

export function printAccept(rows: readonly AcceptRow[]): void {
  print('acceptance alone, 10 KB html; synchronous=FULL, read back')
  printTable(['', 'clients', 'msg/s', 'CPU ms', 'p50 ms', 'p99 ms', 'msg/commit'], rows.map((row) => [
    row.what, row.clients, row.perSecond, row.cpuMilliseconds, row.p50Milliseconds, row.p99Milliseconds,
    Number.isNaN(row.messagesPerCommit) ? null : row.messagesPerCommit,
  ]))
  const [ours, bare] = ['durable accept', 'bare Koa POST'].map((what) => rows.find((row) => row.what === what))
  if (ours !== undefined && bare !== undefined) {
    print(`durable accept is ${Math.round((100 * ours.perSecond) / bare.perSecond)} % of a bare Koa POST\n`)
  }
}

/** One line each, for what has no table. */
export function printOthers(lines: readonly (readonly [what: string, figures: object])[]): void {
  for (const [what, figures] of lines) {
    print(`${what}: ${Object.entries(figures).map(([name, value]) => `${inWords(name)} ${String(value)}`).join(', ')}`)
  }
  print('')
}

export function printLatency({ roundTripMilliseconds, posthorn, postfix, connections, held }: LatencyFigures): void {
  print(`round trip of ${roundTripMilliseconds} ms, messages per second and connection`)
  printTable(['', 'msg/s', 'connections', 'ours : theirs'], [
    ['posthorn', posthorn, connections.posthorn, null],
    ['postfix', postfix, connections.postfix, (posthorn / postfix).toFixed(2)],
  ])
  print(`connections held at once: ${held.connections} of ${held.allowed}, ${held.megabytes} MB at the peak\n`)
}

export function printGrowth({ store, serve, choosing }: GrowthFigures): void {
  print('CPU of the store thread, microseconds for a message')
  printTable(['queued', 'destinations', 'IPs', 'accept', 'claim', 'record', 'file MB'], store.map((row) => [
    row.queued, row.destinations, row.ips, row.acceptMicroseconds, row.claimMicroseconds, row.recordMicroseconds,
    row.fileMegabytes,
  ]))
  printOthers([['the server', serve], ['choosing an IP and a slot', choosing]])
}

export function printProfile({ messages, stages, threads, functions }: ProfileFigures): void {
  print(`CPU of the whole way, 10 KB, milliseconds for a message of ${messages}`)
  const whole = Object.values(stages).reduce((sum, value) => sum + value, 0)
  printTable(['stage', 'ms'], [...Object.entries(stages), ['sum', whole.toPrecision(3)]])
  printTable(['thread', 'ms'], Object.entries(threads))
  for (const [thread, rows] of Object.entries(functions)) {
    printTable([`${thread} thread`, 'us'], rows.map(({ name, microseconds }) => [name, microseconds]))
  }
}

/** `perSecond` as `per second`. */
function inWords(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`) // capitals inside a name
}
