/**
 * What a delivery thread tells the main thread, one message for each turn of the event loop: results, requests for the
 * dot mark, and what happened to connections.
 *
 * A mark is asked for once; its answer comes after the commit, or never, which is the asker's to bear. Never throws.
 */
import type { FromThread, ThreadConnectionNote, ThreadTurn, ToThread, TryResult } from '../protocol/try-result.ts'

export interface Outbox {
  report(result: TryResult): void
  note(note: ThreadConnectionNote): void
  /** `answer` is called with false for a claim that holds its row no more. */
  askMark(claim: number, answer: (isOurs: boolean) => void): void
  marked(message: Extract<ToThread, { kind: 'marked' }>): void
  /** Sends what there is at once. */
  flush(): void
}

interface Asked {
  claim: number
  answer: (isOurs: boolean) => void
}

/** Questions about marks that one thread can ask before its ids meet those of the next. */
const MARKS_OF_A_THREAD = 2 ** 32

/**
 * `threadId`: of all threads of the process no two have the same. A thread takes the place of one that died, and what
 * the store answers to that one's questions must not let a dot of this one out.
 */
export function createOutbox(post: (message: FromThread) => void, threadId: number): Outbox {
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

  return {
    flush,
    report(result) {
      results.push(result)
      schedule()
    },
    note(note) {
      notes.push(note)
      schedule()
    },
    askMark(claim, answer) {
      marks.push({ claim, answer })
      schedule()
    },
    marked({ id, stale }) {
      const waiting = asked.get(id) ?? []
      asked.delete(id)
      for (const { claim, answer } of waiting) answer(!stale.includes(claim))
    },
  }
}
