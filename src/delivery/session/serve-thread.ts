/**
 * What a delivery thread does: sends the rows it is given over the connections of their paths, and reports how each one
 * ended.
 *
 * Decides nothing beyond one try. Results of one turn of the event loop travel as one message. Connections, rendering
 * and the way to the main thread are handed in, so that the same code runs in a worker and in the simulator.
 */
import type { ThreadPlace } from '../../mail/whereabouts.ts'
import type { FromThread, DispatchedRow, PathBatch, ToThread } from '../protocol/try-result.ts'
import { createConnectionSlots } from './connection-slots.ts'
import type { DeliveryTools } from './connection-worker.ts'
import { createHostMemory } from './host-memory.ts'
import { createOutbox } from './outbox.ts'
import { createPathSender } from './path-sender.ts'
import type { PathSender } from './path-sender.ts'

export interface ServedThread extends Pick<DeliveryTools, 'open' | 'render' | 'transcript'> {
  /** Unlike that of every other thread of the process. */
  threadId: number
  post: (message: FromThread) => void
  /** This thread's share of `delivery.connections_max`. */
  connectionsMax: number
  /** These rows are rendered soon. */
  readAhead: (rows: readonly DispatchedRow[]) => void
  /** Closes everything and ends the thread. */
  end: () => Promise<void>
}

/** Returns what takes each message of the main thread. */
export function serveThread(served: ServedThread): (message: ToThread) => void {
  const { post, open, transcript, render, readAhead, connectionsMax } = served
  const senders = new Map<string, PathSender>()
  const slots = createConnectionSlots<PathSender>(connectionsMax)
  const outbox = createOutbox(post, served.threadId)
  let clockOffset = 0
  let isDraining = false

  const tools: DeliveryTools = {
    open,
    transcript,
    render,
    hosts: createHostMemory(),
    note: outbox.note,
    askMark: outbox.askMark,
    now: () => Date.now() + clockOffset,
  }

  function senderOf(path: PathBatch['path']): PathSender {
    const known = senders.get(path.key)
    if (known !== undefined) return known
    const sender: PathSender = createPathSender(path, {
      tools,
      report: outbox.report,
      takeConnection: (isUrgent) => slots.take(sender, isUrgent),
      releaseConnection: slots.release,
      onRest: () => slots.rests(sender),
      onIdle() {
        senders.delete(path.key)
        slots.forget(sender)
        if (isDraining) finishDrain()
      },
    })
    senders.set(path.key, sender)
    return sender
  }

  function placeOf(claim: number): ThreadPlace | null {
    for (const sender of senders.values()) {
      const place = sender.where(claim)
      if (place !== undefined) return place
    }
    return null
  }

  const claimsHere = (): number[] => [...senders.values()].flatMap((sender) => sender.claims())

  function finishDrain(): void {
    if (senders.size > 0) return
    outbox.flush()
    post({ kind: 'drained' })
  }

  function drain(): void {
    isDraining = true
    for (const sender of senders.values()) sender.drain()
    finishDrain()
  }

  return (message) => {
    switch (message.kind) {
      case 'dispatch':
        clockOffset = message.clockOffset
        readAhead(message.batches.flatMap(({ rows }) => rows))
        for (const batch of message.batches) senderOf(batch.path).add(batch)
        return
      case 'marked':
        clockOffset = message.clockOffset
        return outbox.marked(message)
      case 'limit':
        return senders.get(message.pathKey)?.limit(message)
      case 'tick':
        return post({ kind: 'tick', id: message.id })
      case 'claims':
        outbox.flush()
        return post({ kind: 'claims', id: message.id, claims: claimsHere() })
      case 'where':
        // What has ended is told before.
        outbox.flush()
        return post({ kind: 'where', id: message.id, place: placeOf(message.claim) })
      case 'drain':
        return drain()
      case 'abort':
        for (const sender of senders.values()) sender.abort()
        return
      case 'end':
        return void served.end()
    }
  }
}
