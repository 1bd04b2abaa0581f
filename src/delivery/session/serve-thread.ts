/**
 * What a delivery thread does: sends the rows it is given over the connections of their paths, and reports how each one
 * ended, what one turn of the event loop brought as one message. Connections, rendering and the way to the main thread
 * are handed in, so that the same code runs in a worker and in the simulator.
 */
import type { ThreadPlace } from '../../mail/whereabouts.ts'
import type {
  DispatchedRow,
  FromThread,
  PathBatch,
  ThreadConnectionNote,
  ThreadTurn,
  ToThread,
  TryResult,
} from '../protocol/try-result.ts'
import { createConnectionSlots } from './connection-slots.ts'
import type { DeliveryTools } from './row-trials.ts'
import { createHostMemory } from './open-connection.ts'
import { createPathSender, type PathSender } from './path-sender.ts'
import { isOldMark } from './transaction-end.ts'

export interface ServedThread extends Pick<DeliveryTools, 'open' | 'render' | 'transcript'> {
  /** Unlike that of every other thread of the process. */
  threadId: number
  post: (message: FromThread) => void
  /** This thread's share of `delivery.connections_max`. */
  connectionsMax: number
  /** These rows are rendered soon. */
  readAhead: (rows: readonly DispatchedRow[]) => void
  /** It is reported. */
  forget: (row: DispatchedRow) => void
  /** Closes everything and ends the thread. */
  end: () => Promise<void>
}

/** Returns what takes each message of the main thread. */
export function serveThread(served: ServedThread): (message: ToThread) => void {
  const { post, readAhead } = served
  const outbox = createOutbox(post, served.threadId)
  const senders = createSenders(served, outbox, onIdle)
  let isDraining = false

  function onIdle(): void {
    if (!isDraining || senders.size() > 0) return
    outbox.flush()
    post({ kind: 'drained' })
  }

  return (message) => {
    switch (message.kind) {
      case 'dispatch':
        senders.setClock(message.clockOffset)
        readAhead(message.batches.flatMap(({ rows }) => rows))
        for (const batch of message.batches) senders.of(batch.path).add(batch)
        return
      case 'marked':
        senders.setClock(message.clockOffset)
        return outbox.marked(message)
      case 'limit':
        return senders.find(message.pathKey)?.limit(message)
      case 'tick':
        return post({ kind: 'tick', id: message.id })
      case 'claims':
        outbox.flush()
        return post({ kind: 'claims', id: message.id, claims: senders.all().flatMap((sender) => sender.claims()) })
      case 'where':
        // What has ended is told before.
        outbox.flush()
        return post({ kind: 'where', id: message.id, place: senders.where(message.claim) })
      case 'drain':
        isDraining = true
        for (const sender of senders.all()) sender.drain()
        return onIdle()
      case 'abort':
        for (const sender of senders.all()) sender.abort()
        return
      case 'end':
        return void served.end()
    }
  }
}

function createSenders(served: ServedThread, outbox: Outbox, onIdle: () => void) {
  const senders = new Map<string, PathSender>()
  const slots = createConnectionSlots<PathSender>(served.connectionsMax)
  let clockOffset = 0
  const { open, transcript, render } = served
  const { note, askMark, report } = outbox
  const now = (): number => Date.now() + clockOffset
  const tools: DeliveryTools = { open, transcript, render, hosts: createHostMemory(), note, askMark, now }
  return {
    /** Made when it is not there; it leaves when it has neither rows nor connections. */
    of(path: PathBatch['path']): PathSender {
      const known = senders.get(path.key)
      if (known !== undefined) return known
      const sender: PathSender = createPathSender(path, {
        tools,
        report(row, result) {
          served.forget(row)
          report(result)
        },
        takeConnection: (isUrgent, domains) => slots.take(sender, isUrgent, domains),
        releaseConnection: slots.release,
        onRest: (domain) => slots.rests(sender, domain),
        onIdle() {
          senders.delete(path.key)
          slots.forget(sender)
          onIdle()
        },
      })
      senders.set(path.key, sender)
      return sender
    },
    find: (pathKey: string) => senders.get(pathKey),
    all: () => [...senders.values()],
    size: () => senders.size,
    where(claim: number): ThreadPlace | null {
      return [...senders.values()].flatMap((sender) => sender.where(claim) ?? [])[0] ?? null
    },
    /** The dispatcher's clock, by the offset to ours. */
    setClock: (offset: number) => void (clockOffset = offset),
  }
}

/**
 * What the thread tells, one message for each turn of the event loop. A mark is asked for once; its answer comes after
 * the commit, or never, which is the asker's to bear.
 */
type Outbox = ReturnType<typeof createOutbox>

/** `at`: when it was asked, by the monotonic clock. */
type Asked = { claim: number; answer: (isOurs: boolean) => void; at: number }

/** Questions about marks that one thread can ask before its ids meet those of the next. */
const MARKS_OF_A_THREAD = 2 ** 32

/**
 * `threadId`: of all threads of the process no two have the same. A thread takes the place of one that died, and what
 * the store answers to that one's questions must not let a dot of this one out.
 */
function createOutbox(post: (message: FromThread) => void, threadId: number) {
  const asked = new Map<number, Asked[]>()
  let results: TryResult[] = []
  let notes: ThreadConnectionNote[] = []
  let marks: Asked[] = []
  let nextMark = threadId * MARKS_OF_A_THREAD
  let isScheduled = false

  function schedule(): void {
    if (isScheduled) return
    isScheduled = true
    setImmediate(flush)
  }

  function flush(): void {
    isScheduled = false
    if (notes.length + results.length + marks.length === 0) return
    post({ kind: 'turn', turn: { notes, results, mark: takeMarks() } })
    notes = []
    results = []
  }

  function takeMarks(): ThreadTurn['mark'] {
    if (marks.length === 0) return null
    const id = nextMark++
    const claims = marks.map(({ claim }) => claim)
    asked.set(id, marks)
    marks = []
    return { id, claims }
  }

  /** `answer` is called with false for a claim that holds its row no more. */
  function askMark(claim: number, answer: Asked['answer']): void {
    marks.push({ claim, answer, at: performance.now() })
    schedule()
  }

  return {
    flush,
    report(result: TryResult): void {
      results.push(result)
      schedule()
    },
    note(note: ThreadConnectionNote): void {
      notes.push(note)
      schedule()
    },
    askMark,
    marked({ id, stale }: Extract<ToThread, { kind: 'marked' }>): void {
      const waiting = asked.get(id) ?? []
      asked.delete(id)
      for (const { claim, answer, at } of waiting) {
        if (isOldMark(at) && !stale.includes(claim)) askMark(claim, answer)
        else answer(!stale.includes(claim))
      }
    },
  }
}
