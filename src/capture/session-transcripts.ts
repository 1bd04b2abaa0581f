/**
 * What was said on each SMTP connection, from the library's log: `C: ` is the sender, `S: ` the server. A list that was
 * handed out goes on growing until the next message begins, so the reply to the final dot is its last line. Bounded.
 */
import type { SMTPServer } from 'smtp-server'

export interface SessionTranscripts {
  /** Listens to what the server says and hears. */
  listenTo(server: SMTPServer): void
  /** The lines of the message under way. */
  linesOf(sessionId: string): string[]
  /** The next line belongs to the next message. */
  beginNext(sessionId: string): void
  /** The connection is closed. */
  forget(sessionId: string): void
}

const MOST_LINES = 200
const MOST_CHARACTERS = 500

export function createSessionTranscripts(): SessionTranscripts {
  const bySession = new Map<string, string[]>()
  const linesOf = (sessionId: string): string[] => {
    const lines = bySession.get(sessionId) ?? []
    bySession.set(sessionId, lines)
    return lines
  }
  const note = (facts: unknown, side: unknown, text: unknown): void => {
    if ((side !== 'C:' && side !== 'S:') || typeof facts !== 'object' || facts === null || !('cid' in facts)) return
    const lines = linesOf(String(facts.cid))
    for (const line of String(text).split('\r\n')) {
      if (lines.length < MOST_LINES) lines.push(`${side} ${line}`.slice(0, MOST_CHARACTERS))
    }
  }

  return {
    listenTo(server) {
      const silent = (): void => {}
      server.logger = { trace: silent, debug: note, info: silent, warn: silent, error: silent, fatal: silent }
    },
    linesOf,
    beginNext: (sessionId) => void bySession.delete(sessionId),
    forget: (sessionId) => void bySession.delete(sessionId),
  }
}
