/**
 * CPU time and memory of processes from their accounting in /proc: what counts on a shared machine, where wall time
 * lies. Linux alone. Throws when the process is gone.
 */
import { readdirSync, readFileSync } from 'node:fs'

/** Clock ticks per second of /proc/<pid>/stat: 100 on every Linux that Node runs on. */
const TICKS_PER_SECOND = 100
const NANOSECONDS_PER_SECOND = 1_000_000_000
const PARENT_FIELD = 1
const USER_TIME_FIELD = 11
const SYSTEM_TIME_FIELD = 12
/** Of children that have ended and were waited for. */
const ENDED_USER_FIELD = 13
const ENDED_SYSTEM_FIELD = 14

/** Seconds of CPU the process has used so far, all its threads. */
export function cpuSeconds(processId: number): number {
  return secondsIn(`/proc/${processId}/stat`, [USER_TIME_FIELD, SYSTEM_TIME_FIELD])
}

/** The same with all its children and theirs, those that have ended too. */
export function treeCpuSeconds(processId: number): number {
  const parents = new Map<number, number>()
  for (const name of readdirSync('/proc')) {
    const child = Number(name)
    if (Number.isInteger(child)) parents.set(child, parentOf(child))
  }
  const isBelow = (candidate: number): boolean => {
    for (let at: number | undefined = candidate; at !== undefined && at > 1; at = parents.get(at)) {
      if (at === processId) return true
    }
    return false
  }
  return [...parents.keys()].filter(isBelow).reduce((sum, each) => sum + ownAndEnded(each), 0)
}

/** Seconds of CPU by name of the thread (`MainThread`, `store`, `libuv-worker`, ...), threads of one name together. */
export function threadCpuSeconds(processId: number): Record<string, number> {
  const byName: Record<string, number> = {}
  for (const thread of readdirSync(`/proc/${processId}/task`)) {
    const folder = `/proc/${processId}/task/${thread}`
    try {
      const name = readFileSync(`${folder}/comm`, 'utf8').trim()
      const [nanoseconds] = readFileSync(`${folder}/schedstat`, 'utf8').split(' ')
      byName[name] = (byName[name] ?? 0) + Number(nanoseconds) / NANOSECONDS_PER_SECOND
    } catch (thrown) {
      if (!isGone(thrown)) throw thrown
    }
  }
  return byName
}

/** Highest resident memory so far, in bytes. */
export function peakMemoryBytes(processId: number): number {
  return statusBytes(processId, /^VmHWM:\s+(\d+) kB$/m)
}

/** Resident memory now, in bytes. */
export function residentBytes(processId: number): number {
  return statusBytes(processId, /^VmRSS:\s+(\d+) kB$/m)
}

function statusBytes(processId: number, line: RegExp): number {
  return Number(line.exec(readFileSync(`/proc/${processId}/status`, 'utf8'))?.[1] ?? Number.NaN) * 1_024
}

/** Seconds of CPU of the process and of the children it has waited for; 0 when it is gone. */
export function ownAndEnded(processId: number): number {
  try {
    const fields = [USER_TIME_FIELD, SYSTEM_TIME_FIELD, ENDED_USER_FIELD, ENDED_SYSTEM_FIELD]
    return secondsIn(`/proc/${processId}/stat`, fields)
  } catch (thrown) {
    if (isGone(thrown)) return 0
    throw thrown
  }
}

function parentOf(processId: number): number {
  try {
    return Number(fieldsOf(`/proc/${processId}/stat`)[PARENT_FIELD])
  } catch (thrown) {
    if (isGone(thrown)) return 0
    throw thrown
  }
}

function secondsIn(file: string, fields: readonly number[]): number {
  const all = fieldsOf(file)
  return fields.reduce((sum, field) => sum + Number(all[field]), 0) / TICKS_PER_SECOND
}

function fieldsOf(file: string): string[] {
  const text = readFileSync(file, 'utf8')
  // The name in parentheses may hold spaces: the fields are counted behind it.
  return text.slice(text.lastIndexOf(')') + 2).split(' ')
}

/** It ended between being listed and being read. */
function isGone(thrown: unknown): boolean {
  const code = thrown instanceof Error && 'code' in thrown ? thrown.code : ''
  return code === 'ENOENT' || code === 'ESRCH'
}
