/**
 * The second half of the dispatcher: from a path to a stored outcome. The pump gives rows to the delivery threads,
 * marks answer the threads' questions, results are settled, and the recorder brings what became of each row into the
 * store.
 */
import type { Clock } from '../base/clock.ts'
import type { EgressIp } from '../egress/ips/egress-ip.ts'
import type { OpenGate } from '../egress/shaping/shaping.ts'
import { createDeliveryThreads, type DeliveryThreads } from './delivery-threads.ts'
import type { DispatcherParts, RowEvents, WakeUps } from './dispatcher-parts.ts'
import type { PathFacts } from './place/path-facts.ts'
import type { Paths } from './place/paths.ts'
import type { PlacedRow } from './place/place-messages.ts'
import type { ReadyWindow } from './place/ready-window.ts'
import type { DispatchedRow, PathBatch, ThreadConnectionNote } from './protocol/try-result.ts'
import type { ClaimHistory } from './settle/claim-history.ts'
import { createDotMarks, type DotMarks } from './settle/dot-marks.ts'
import { createOutcomeRecorder } from './settle/outcome-recorder.ts'
import { createSettleTries, type SettleTries } from './settle/settle-tries.ts'
import { threadSettings } from './thread-settings.ts'

export type Sending = ReturnType<typeof createSending>

interface SendingHooks {
  events: RowEvents
  wake: WakeUps
  /** False: nothing goes to a thread any more. */
  maySend: () => boolean
  onUnblocked: () => void
  onFatal: (reason: Error) => void
}

export function createSending(parts: DispatcherParts, hooks: SendingHooks) {
  const { events } = hooks
  const connections = createConnectionNotes(parts, hooks.wake)
  const recorder = createOutcomeRecorder({ ...parts, onStored: events.stored })
  // Marks ask which rows are in a thread, and a settled try forgets its mark: each knows the other.
  const marks: DotMarks = createDotMarks({
    ...parts,
    behindOutcomes: recorder.behind,
    keyInThread: (claim) => tries.keyInThread(claim),
    answer: (thread, id, stale) => threads.marked(thread, id, stale),
    onUnblocked: hooks.onUnblocked,
  })
  const tries = createSettleTries({ ...parts, configuration: parts.live, recorder, marks, onLeft: events.left })
  const threads = createDeliveryThreads({
    ...parts,
    count: parts.threadCount,
    settings: threadSettings(parts.configuration(), parts, parts.threadCount),
    onResults: tries.settle,
    onMark: marks.ask,
    onConnections: connections.note,
    onStart: (thread, worker) => parts.metrics.watchThread(`delivery-${thread}`, worker),
    onDeath(thread) {
      connections.forgetThread(thread)
      tries.giveBackThread(thread)
    },
    onFatal: hooks.onFatal,
  })
  const openThreads = () => (hooks.maySend() ? threads : undefined)
  const pump = createPathPump({ ...parts, tries, threads: openThreads, onRoom: hooks.wake.claims })
  return { recorder, marks, tries, threads, pump }
}

interface PathPumpOptions {
  clock: Clock
  paths: Paths<PlacedRow>
  tries: Pick<SettleTries, 'begin' | 'giveBack' | 'held'>
  window: Pick<ReadyWindow, 'handOver' | 'roomForBulk'>
  history: Pick<ClaimHistory, 'note'>
  /** Undefined: nothing may go out any more. */
  threads: () => Pick<DeliveryThreads, 'dispatch' | 'limit'> | undefined
  /** The ready window was full, and has room now. */
  onRoom: () => void
}

/**
 * Moves placed rows on: to the delivery thread of their path as far as it takes them, or back to the queue when they
 * cannot go soon. Once per turn of the event loop, so that rows travel in batches, and when a path opens by time.
 */
export function createPathPump({ clock, paths, tries, window, history, threads, onRoom }: PathPumpOptions) {
  let isScheduled = false
  let isStopped = false
  let cancelTimer = (): void => {}

  function schedule(): void {
    if (isScheduled || isStopped) return
    isScheduled = true
    setImmediate(pump)
  }

  function pump(): void {
    isScheduled = false
    const open = threads()
    if (open === undefined) return giveBackWaiting()
    const { ready, expired, returned, limits } = paths.take()
    // No claim takes them again: the store ends them (delivery/README.md "Expiry"). They are due at once all the same,
    // in case the clock had jumped and is set right again.
    for (const row of expired) tries.giveBack(row, { nextAt: row.message.acceptedAt })
    // Other IPs may take them now. Where none does, their queue key is closed, and this costs nothing more.
    for (const { row, closure } of returned)
      tries.giveBack(row, { nextAt: clock.now(), waitingFor: closure.waitingFor })
    for (const { thread, pathKey, ...limit } of limits) open.limit(thread, pathKey, limit)
    const wasFull = window.roomForBulk() === 0
    const batches = new Map<number, PathBatch[]>()
    for (const { thread, gate, rows } of ready) {
      tries.begin(rows, thread)
      for (const { message } of rows) {
        window.handOver(message)
        history.note('to thread', message, thread)
      }
      batches.set(thread, [...(batches.get(thread) ?? []), ...toBatches(rows, gate)])
    }
    for (const [thread, ofThread] of batches) open.dispatch(thread, ofThread)
    if (wasFull && batches.size > 0) onRoom()
    cancelTimer()
    const nextAt = paths.nextAt()
    if (nextAt !== null && !isStopped) cancelTimer = clock.after(Math.max(0, nextAt - clock.now()), schedule)
  }

  /** Everything that has not gone to a thread. */
  function giveBackWaiting(): void {
    for (const row of paths.takeWaiting()) tries.giveBack(row, { nextAt: clock.now() })
  }

  /** Rows whose IP may not send them any more come back from their threads, but for those that have begun. */
  function recall(ips: readonly EgressIp[]): void {
    const current = new Map(ips.map((ip) => [ip.address, ip]))
    const recalled = new Set<string>()
    for (const { row, thread } of tries.held()) {
      const { ip, facts } = row
      if (ip === null || recalled.has(facts.key) || mayFinish(ip, current.get(ip.address))) continue
      recalled.add(facts.key)
      // The next batch of the path brings its limits again.
      const { messagesPerConnection, carefulHosts } = facts.plan
      threads()?.limit(thread, facts.key, { connections: 0, messagesPerConnection, carefulHosts })
    }
  }

  return {
    schedule,
    giveBackWaiting,
    recall,
    stop(): void {
      isStopped = true
      cancelTimer()
    },
  }
}

/** Whether an IP sends what it was given before it changed. One that is disabled finishes what it holds. */
function mayFinish(before: EgressIp, now: EgressIp | undefined): boolean {
  if (now === undefined || now.pool !== before.pool) return false
  if (now.source !== before.source || now.hostname !== before.hostname) return false
  return now.sends === before.sends || now.sends === 'all' || now.state === 'disabled'
}

/** One batch for each site among the rows of a path. */
function toBatches(rows: readonly PlacedRow[], gate: OpenGate): PathBatch[] {
  const batches = new Map<string, PathBatch>()
  for (const row of rows) {
    const { facts, route } = row
    const site = { key: route.siteKey, hosts: route.hosts }
    const { connections, messagesPerConnection, carefulHosts } = gate
    const path = { ...facts.plan, connections, messagesPerConnection, carefulHosts }
    const batch: PathBatch = batches.get(site.key) ?? { path, site, rows: [] }
    batches.set(site.key, batch)
    batch.rows.push(toDispatch(row))
  }
  return [...batches.values()]
}

function toDispatch({ message, returnPath, isUrgent }: PlacedRow): DispatchedRow {
  const { claim, key, id: messageId, contentId, domain, recipientDomain, expiresAt, isCaptured } = message
  const wasInDoubt = message.ambiguousCount > 0
  const facts = { claim, key, messageId, contentId, domain, recipientDomain, expiresAt, isCaptured }
  return { ...facts, returnPath, isUrgent, wasInDoubt }
}

interface OpenConnections {
  thread: number
  /** Connections of captured mail are not counted. */
  facts: PathFacts & { shaped: NonNullable<PathFacts['shaped']> }
  count: number
}

/**
 * What the connections of the threads tell: how many are open, for the metrics; what the hosts say of a path, for
 * shaping; and what they say of TLS.
 */
function createConnectionNotes(parts: DispatcherParts, wake: WakeUps) {
  const { directory, metrics, onConnectionTls, paths, shaping } = parts
  const { smtpConnections, smtpTls } = metrics
  /** By thread and path; only those with open connections. */
  const open = new Map<string, OpenConnections>()
  const isShaped = (facts?: PathFacts): facts is OpenConnections['facts'] => (facts?.shaped ?? null) !== null

  function add(thread: number, facts: OpenConnections['facts'], change: number): void {
    const place = `${thread} ${facts.key}`
    const count = (open.get(place)?.count ?? 0) + change
    smtpConnections.inc(labelsOf(facts), change)
    if (count > 0) open.set(place, { thread, facts, count })
    else open.delete(place)
  }

  function count(note: ThreadConnectionNote['note'], facts: OpenConnections['facts'], thread: number): void {
    if (note.kind === 'careful' || note.kind === 'failed') return
    add(thread, facts, note.kind === 'opened' ? 1 : -1)
    if (note.kind !== 'opened' || !paths.noteOpened(facts, note.inFlight)) return
    // It takes more than the few rows that it had until now.
    directory.openRoute(facts.route)
    wake.claims()
  }

  return {
    note(notes: readonly ThreadConnectionNote[], thread: number): void {
      for (const [pathKey, ofPath] of Map.groupBy(notes, (note) => note.pathKey)) {
        const facts = paths.factsOf(pathKey)
        if (!isShaped(facts)) continue
        for (const connection of ofPath) {
          const { note, tls } = connection
          count(note, facts, thread)
          if (tls === null) continue
          smtpTls.inc({ policy: tls.policy.type, result: tls.isPlainFallback ? 'plain-fallback' : tls.result })
          onConnectionTls(facts.shaped.ip, connection)
        }
        const ofShaping = ofPath.map(({ note }) => note)
        shaping.noteConnections(facts.shaped, ofShaping)
        paths.touch(facts)
      }
      wake.paths()
    },
    /** The connections of a dead thread ended with it: that says nothing of their hosts. */
    forgetThread(dead: number): void {
      for (const [place, { thread, facts, count }] of open) {
        if (thread !== dead) continue
        smtpConnections.dec(labelsOf(facts), count)
        open.delete(place)
        const ends = Array.from({ length: count }, () => ({ kind: 'ended-well' as const, delivered: 0 }))
        shaping.noteConnections(facts.shaped, ends)
        paths.touch(facts)
      }
    },
  }
}

function labelsOf({ shaped: { ip, provider } }: OpenConnections['facts']): { ip: string; provider: string } {
  return { ip, provider: provider ?? 'other' }
}
