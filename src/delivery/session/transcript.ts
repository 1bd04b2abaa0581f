/**
 * The SMTP dialogue of one try as text: `> ` what we said, `< ` what the host said, `* ` what happened beside it. The
 * message itself is never in it, only its size, and credentials are not either: we send none. Control characters become
 * spaces, so that every line stays one; behind 16 KiB nothing more is noted. Never throws.
 */
import { isAscii } from '../../content/mime/encode-header.ts'
import type { ConnectionFacts } from '../../mail/reply/delivery-outcome.ts'
import { MOST_REPLY_CHARACTERS } from '../../mail/reply/smtp-reply.ts'

export type Transcript = ReturnType<typeof createTranscript>

const MOST_CHARACTERS = 16 * 1024
const CUT = '* the rest is left out\n'

export function createTranscript() {
  let text = ''
  const add = (mark: string, line: string): void => {
    if (text.length >= MOST_CHARACTERS) return
    const entry = `${mark} ${isAscii(line) ? line : clean(line)}\n`
    text += text.length + entry.length + CUT.length > MOST_CHARACTERS ? CUT.padEnd(MOST_CHARACTERS) : entry
  }
  return {
    said: (line: string) => add('>', line),
    /** A reply of one or more lines. */
    heard(reply: string): void {
      for (const line of reply.split('\n')) add('<', line)
    },
    note: (what: string) => add('*', what),
    /** null: nothing was noted. */
    text: () => (text === '' ? null : text.trimEnd()),
  }
}

function clean(line: string): string {
  // Every control character but the tab.
  return line
    .replace(/[^\P{Cc}\t]+/gu, ' ')
    .trimEnd()
    .toWellFormed()
}

/** Whatever a host has sent, as one short line that may be stored and shown. */
export function oneLine(text: string): string {
  const start = text.slice(0, 2 * MOST_REPLY_CHARACTERS)
  // Every control character.
  return start
    .replace(/\p{Cc}+/gu, ' ')
    .slice(0, MOST_REPLY_CHARACTERS)
    .toWellFormed()
}

/** The line in front of the first message of a connection. */
export function connectionLine({ host, localAddress, remoteAddress }: ConnectionFacts): string {
  return `connected to ${host} [${remoteAddress}] from [${localAddress}]`
}

/** The line in front of every further message of a connection. */
export function reuseLine(facts: ConnectionFacts, messagesBefore: number): string {
  const security = facts.tls === null ? '' : `, ${facts.tls.protocol}`
  return `${connectionLine(facts)}${security}; this connection has carried ${messagesBefore} before`
}
