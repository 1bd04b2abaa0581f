/**
 * Reads CPU profiles of one process: which share of a thread's work belongs to which stage of a message's way, by the
 * nearest of our own functions on the stack.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

interface ProfileNode {
  id: number
  callFrame: { functionName: string; url: string; lineNumber: number }
  children?: number[]
}

interface Profile {
  nodes: ProfileNode[]
  /** Microseconds of the monotonic clock, which all processes share. */
  startTime: number
  samples: number[]
  timeDeltas: number[]
}

export type Thread = 'main' | 'store' | 'delivery'

export interface ThreadProfile {
  thread: Thread
  /** Microseconds by stage; what waits is not counted. */
  stages: Map<string, number>
  /** Microseconds by function, `name file:line`, by the nearest of ours. */
  functions: Map<string, number>
}

const OURS = '/src/'
/** The first that matches the file counts; folders as in src/README.md. */
const STAGES: readonly [prefix: string, stage: string][] = [
  ['content/mime/dkim.ts', 'DKIM'],
  ['content/', 'render'],
  ['base/threads/thread-channel.ts', 'messages between threads'],
  ['delivery/session/delivery-thread.ts', 'messages between threads'],
  ['delivery/delivery-threads.ts', 'messages between threads'],
  ['delivery/session/serve-thread.ts', 'messages between threads'],
  ['delivery/session/message-', 'render'],
  ['delivery/session/smtp-', 'SMTP client'],
  ['delivery/session/reply-reader.ts', 'SMTP client'],
  ['delivery/session/connection-', 'SMTP client'],
  ['delivery/session/row-', 'SMTP client'],
  ['delivery/session/site-queues.ts', 'SMTP client'],
  ['delivery/session/envelope-steps.ts', 'SMTP client'],
  ['delivery/session/path-sender.ts', 'SMTP client'],
  ['delivery/session/open', 'SMTP client'],
  ['delivery/session/transaction-end.ts', 'SMTP client'],
  ['delivery/settle/attempt-log.ts', 'log'],
  ['delivery/', 'dispatch and settle'],
  ['egress/', 'dispatch and settle'],
  ['network/guarded', 'webhooks'],
  ['network/one-exchange.ts', 'webhooks'],
  ['network/', 'dispatch and settle'],
  ['webhooks/', 'webhooks'],
  ['store/', 'store'],
  ['mail/message-token.ts', 'render'],
  ['messages/accept/acceptance-log.ts', 'log'],
  ['http/', 'HTTP and acceptance'],
  ['messages/', 'HTTP and acceptance'],
  ['senders/', 'HTTP and acceptance'],
  ['base/logger.ts', 'log'],
]
const NO_WORK = ['(idle)', '(root)']

/** Microseconds of the monotonic clock. */
export interface TimeSpan {
  from: number
  to: number
}

/** What was sampled in this time. Profiles without a thread of the server (short helpers) are left out. */
export function readProfiles(folder: string, span: TimeSpan): ThreadProfile[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith('.cpuprofile'))
    .map((name) => readProfile(JSON.parse(readFileSync(join(folder, name), 'utf8')) as Profile, span))
    .filter((profile) => profile !== undefined)
}

function readProfile(profile: Profile, { from, to }: TimeSpan): ThreadProfile | undefined {
  const { nodes, samples, timeDeltas, startTime } = profile
  const has = (file: string): boolean => nodes.some(({ callFrame }) => callFrame.url.endsWith(file))
  const thread = has('/store/thread/group-commit.ts')
    ? 'store'
    : has('/delivery/session/path-sender.ts')
      ? 'delivery'
      : has('/http/exchange/handle-request.ts')
        ? 'main'
        : undefined
  if (thread === undefined) return undefined
  const owners = ownersOf(nodes)
  const stages = new Map<string, number>()
  const functions = new Map<string, number>()
  const add = (sums: Map<string, number>, name: string, time: number): void =>
    void sums.set(name, (sums.get(name) ?? 0) + time)
  let at = startTime
  samples.forEach((id, index) => {
    const time = timeDeltas[index] ?? 0
    at += time
    const owner = owners.get(id)
    if (owner === undefined || at < from || at > to) return
    add(stages, owner.stage, time)
    add(functions, owner.name, time)
  })
  return { thread, stages, functions }
}

interface Owner {
  stage: string
  name: string
}

/** For every node that is work: the nearest function of ours on its stack. */
function ownersOf(nodes: readonly ProfileNode[]): Map<number, Owner> {
  const byId = new Map(nodes.map((node) => [node.id, node]))
  const parents = new Map(nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id] as const)))
  const owners = new Map<number, Owner>()
  for (const { id, callFrame } of nodes) {
    if (NO_WORK.includes(callFrame.functionName)) continue
    let at: number | undefined = id
    while (at !== undefined && byId.get(at)?.callFrame.url.includes(OURS) !== true) at = parents.get(at)
    const ours = at === undefined ? undefined : byId.get(at)?.callFrame
    owners.set(id, ours === undefined ? runtimeOwner(callFrame.functionName) : ownerOf(ours))
  }
  return owners
}

function ownerOf({ functionName, url, lineNumber }: ProfileNode['callFrame']): Owner {
  const file = url.slice(url.lastIndexOf(OURS) + OURS.length)
  const stage = STAGES.find(([prefix]) => file.startsWith(prefix))?.[1] ?? 'other'
  return { stage, name: `${functionName === '' ? '(anonymous)' : functionName} ${file}:${lineNumber + 1}` }
}

/** Garbage collection, sockets, timers: nothing of ours is on the stack. */
function runtimeOwner(functionName: string): Owner {
  return { stage: 'runtime', name: functionName === '' ? '(runtime)' : functionName }
}
