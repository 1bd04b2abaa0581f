/**
 * Moves placed rows on: to the delivery thread of their path as far as it takes them, or back to the queue when they
 * cannot go soon. Once per turn of the event loop, so that rows travel in batches, and when a path opens by time.
 */
import type { Clock } from '../base/clock.ts'
import type { OpenGate } from '../egress/shaping/shaping.ts'
import type { ClaimHistory } from './settle/claim-history.ts'
import type { DeliveryThreads } from './delivery-threads.ts'
import type { Paths } from './place/paths.ts'
import type { PlacedRow } from './place/placed-row.ts'
import type { ReadyWindow } from './place/ready-window.ts'
import type { SettleTries } from './settle/settle-tries.ts'
import type { PathBatch } from './protocol/try-result.ts'

interface PathPumpOptions {
  clock: Clock
  paths: Paths<PlacedRow>
  tries: Pick<SettleTries, 'begin' | 'giveBack'>
  window: Pick<ReadyWindow, 'handOver' | 'roomForBulk'>
  history: Pick<ClaimHistory, 'note'>
  /** Undefined: nothing may go out any more. */
  threads: () => Pick<DeliveryThreads, 'dispatch' | 'limit'> | undefined
  /** The ready window was full, and has room now. */
  onRoom: () => void
}

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
    for (const { thread, pathKey, connections, messagesPerConnection } of limits) {
      open.limit(thread, pathKey, { connections, messagesPerConnection })
    }
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
    setTimer()
  }

  function setTimer(): void {
    cancelTimer()
    const nextAt = paths.nextAt()
    if (nextAt !== null && !isStopped) cancelTimer = clock.after(Math.max(0, nextAt - clock.now()), schedule)
  }

  /** Everything that has not gone to a thread. */
  function giveBackWaiting(): void {
    for (const row of paths.takeWaiting()) tries.giveBack(row, { nextAt: clock.now() })
  }

  return {
    schedule,
    giveBackWaiting,
    stop(): void {
      isStopped = true
      cancelTimer()
    },
  }
}

/** One batch for each site among the rows of a path. */
function toBatches(rows: readonly PlacedRow[], { connections, messagesPerConnection }: OpenGate): PathBatch[] {
  const batches = new Map<string, PathBatch>()
  for (const { facts, route, message, returnPath, isUrgent } of rows) {
    const site = { key: route.siteKey, hosts: route.hosts }
    const path = { ...facts.plan, connections, messagesPerConnection }
    const batch: PathBatch = batches.get(site.key) ?? { path, site, rows: [] }
    batches.set(site.key, batch)
    batch.rows.push({
      claim: message.claim,
      key: message.key,
      messageId: message.id,
      contentId: message.contentId,
      domain: message.domain,
      returnPath,
      recipientDomain: message.recipientDomain,
      expiresAt: message.expiresAt,
      isCaptured: message.isCaptured,
      isUrgent,
    })
  }
  return [...batches.values()]
}
