/** What a check of one record found, before it becomes a `RecordCheck`: the same words for every record. Pure. */
import type { DnsAnswer } from '../../network/resolver.ts'

export interface RecordFinding {
  /**
   * missing: nothing is published; failed: it is, with another effect; pending: what is published is right, and has no
   * effect yet; temporary_failure: no answer came.
   */
  status: 'verified' | 'missing' | 'failed' | 'pending' | 'temporary_failure'
  found: string[]
  error?: string
  /** A likely cause, and what to do. */
  hint?: string
  evaluated?: { ip: string; result: string }[]
}

export function verified(found: string[]): RecordFinding {
  return { status: 'verified', found }
}

export function missing(type: string, name: string, hint: string | undefined): RecordFinding {
  return { status: 'missing', found: [], error: `no ${type} record at ${name}`, ...hinted(hint) }
}

export function failed(found: string[], error: string, hint: string | undefined): RecordFinding {
  return { status: 'failed', found, error, ...hinted(hint) }
}

export function noAnswer(reason: string): RecordFinding {
  return { status: 'temporary_failure', found: [], error: reason }
}

export function hinted(hint: string | undefined): { hint?: string } {
  return hint === undefined ? {} : { hint }
}

export function recordsIn<Item>(answer: DnsAnswer<Item>): Item[] {
  return answer.kind === 'found' ? answer.records : []
}

/** TXT records that begin as `start`, in lower case, says. */
export function textRecords(answer: DnsAnswer<string>, start: string): string[] {
  return recordsIn(answer).filter((text) => text.trim().toLowerCase().startsWith(start))
}

const MOST_FOUND_RECORDS = 10
const MOST_FOUND_CHARACTERS = 2_048

/** As it may be shown: a part of a long answer, with nothing in it that moves a terminal. */
export function shownRecords(found: readonly string[]): string[] {
  return (
    found
      .slice(0, MOST_FOUND_RECORDS)
      // Every control or format character, and half of a pair that lost its other half.
      .map((text) => text.slice(0, MOST_FOUND_CHARACTERS).replace(/[\p{Cc}\p{Cf}\p{Cs}]/gu, escaped))
  )
}

/** As a zone file writes a byte that cannot be printed (RFC 1035 §5.1), beyond a byte as JavaScript does. */
function escaped(character: string): string {
  const code = character.charCodeAt(0)
  return code < 256 ? `\\${String(code).padStart(3, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`
}
