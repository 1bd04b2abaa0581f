/**
 * What the connections of the delivery threads tell: how many are open, for the metrics; what the hosts say of a path,
 * for shaping; and what they say of TLS. The connections of a thread that died are gone with it. Never throws.
 */
import type { DispatcherParts } from './dispatcher-parts.ts'
import type { PathFacts } from './place/path-facts.ts'
import type { ThreadConnectionNote } from './protocol/try-result.ts'

interface OpenConnections {
  thread: number
  /** Connections of captured mail are not counted. */
  facts: PathFacts & { shaped: NonNullable<PathFacts['shaped']> }
  count: number
}

export function createConnectionNotes(
  { metrics: { smtpConnections, smtpTls }, onConnectionTls, paths, shaping }: DispatcherParts,
  wakePaths: () => void,
) {
  /** By thread and path; only those with open connections. */
  const open = new Map<string, OpenConnections>()

  function add(thread: number, facts: OpenConnections['facts'], change: number): void {
    const place = `${thread} ${facts.key}`
    const count = (open.get(place)?.count ?? 0) + change
    smtpConnections.inc(labelsOf(facts), change)
    if (count > 0) open.set(place, { thread, facts, count })
    else open.delete(place)
  }

  return {
    note(notes: readonly ThreadConnectionNote[], thread: number): void {
      for (const [pathKey, ofPath] of Map.groupBy(notes, (note) => note.pathKey)) {
        const facts = paths.factsOf(pathKey)
        if (facts === undefined || !isShaped(facts)) continue
        for (const connection of ofPath) {
          const { note, tls } = connection
          if (note.kind === 'opened') add(thread, facts, 1)
          else if (note.kind !== 'failed') add(thread, facts, -1)
          if (tls === null) continue
          smtpTls.inc({ policy: tls.policy.type, result: tls.isPlainFallback ? 'plain-fallback' : tls.result })
          onConnectionTls(facts.shaped.ip, connection)
        }
        shaping.noteConnections(
          facts.shaped,
          ofPath.map(({ note }) => note),
        )
        paths.touch(facts)
      }
      wakePaths()
    },
    /** The connections of a dead thread ended with it: that says nothing of their hosts. */
    forgetThread(dead: number): void {
      for (const [place, { thread, facts, count }] of open) {
        if (thread !== dead) continue
        smtpConnections.dec(labelsOf(facts), count)
        open.delete(place)
        shaping.noteConnections(
          facts.shaped,
          Array.from({ length: count }, () => ({ kind: 'ended-well', delivered: 0 })),
        )
        paths.touch(facts)
      }
    },
  }
}

function isShaped(facts: PathFacts): facts is OpenConnections['facts'] {
  return facts.shaped !== null
}

function labelsOf({ shaped: { ip, provider } }: OpenConnections['facts']): { ip: string; provider: string } {
  return { ip, provider: provider ?? 'other' }
}
