/**
 * CPU time and memory of a process from its accounting in /proc: what counts on a shared machine, where wall time lies.
 */
import { readFileSync } from 'node:fs'

/** Clock ticks per second of /proc/<pid>/stat: 100 on every Linux that Node runs on. */
const TICKS_PER_SECOND = 100
const USER_TIME_FIELD = 11
const SYSTEM_TIME_FIELD = 12

/** Seconds of CPU the process has used so far, all its threads. */
export function cpuSeconds(processId: number): number {
  const text = readFileSync(`/proc/${processId}/stat`, 'utf8')
  // The name in parentheses may hold spaces: the fields are counted behind it.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[USER_TIME_FIELD]) + Number(fields[SYSTEM_TIME_FIELD])) / TICKS_PER_SECOND
}

/** Highest resident memory so far, in bytes. */
export function peakMemoryBytes(processId: number): number {
  const text = readFileSync(`/proc/${processId}/status`, 'utf8')
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(text)?.[1] ?? Number.NaN) * 1_024
}
