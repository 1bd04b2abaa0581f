/**
 * How many connections to mail hosts are open, by thread and path: by IP and provider for the metrics. The delivery
 * threads tell of every one that opens and ends; those of a thread that died are gone with it, and whoever counts them
 * too has to be told. Never throws.
 */
import type { Metrics } from '../base/metrics.ts'
import type { PathFacts } from './place/path-facts.ts'
import type { ThreadConnectionNote } from './protocol/try-result.ts'

export interface ConnectionCount {
  /** `facts`: of the path; those of captured mail are not counted. */
  note(thread: number, facts: PathFacts, notes: readonly ThreadConnectionNote[]): void
  /** The thread is dead; returns what was open in it. */
  forgetThread(thread: number): { facts: PathFacts; open: number }[]
}

interface Count {
  thread: number
  facts: PathFacts
  labels: { ip: string; provider: string }
  open: number
}

export function createConnectionCount({
  smtpConnections,
  smtpTls,
}: Pick<Metrics, 'smtpConnections' | 'smtpTls'>): ConnectionCount {
  /** By thread and path; only those with open connections. */
  const counts = new Map<string, Count>()

  function add(thread: number, facts: PathFacts, change: number): void {
    const { key, shaped } = facts
    if (shaped === null) return
    const place = `${thread} ${key}`
    const count = counts.get(place) ?? {
      thread,
      facts,
      labels: { ip: shaped.ip, provider: shaped.provider ?? 'other' },
      open: 0,
    }
    count.open += change
    count.facts = facts
    smtpConnections.inc(count.labels, change)
    if (count.open > 0) counts.set(place, count)
    else counts.delete(place)
  }

  return {
    note(thread, facts, notes) {
      for (const { note, tls } of notes) {
        if (note.kind === 'opened') add(thread, facts, 1)
        else if (note.kind !== 'failed') add(thread, facts, -1)
        if (tls === null || facts.shaped === null) continue
        smtpTls.inc({ policy: tls.policy.type, result: tls.isPlainFallback ? 'plain-fallback' : tls.result })
      }
    },
    forgetThread(thread) {
      const ofThread = [...counts].filter(([, count]) => count.thread === thread)
      for (const [place, { labels, open }] of ofThread) {
        smtpConnections.dec(labels, open)
        counts.delete(place)
      }
      return ofThread.map(([, { facts, open }]) => ({ facts, open }))
    },
  }
}
