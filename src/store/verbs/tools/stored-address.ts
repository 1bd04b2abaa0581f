/**
 * An erased address as it stays on the suppression list: a keyed hash, by which it is known again when somebody sends
 * to it, and by which nobody can read it (messages/README.md "Privacy"). No address looks like it: it has no `@`.
 */
import { createHmac } from 'node:crypto'
import type { Database } from '../../engine/database.ts'
import { oneColumn } from './statements.ts'

/** What stands in the place of the recipient in messages. A name that no mail reaches (RFC 2606). */
export const ERASED = 'erased@erased.invalid'

// Before it: an escape of a URL, of quoted-printable, of JSON or of PostgreSQL, or the code of a reply of several lines.
const ESCAPE = String.raw`%[0-9a-f]{2}|=[0-9a-f]{2}|\\[bfnrt]|\\u[0-9a-f]{4}|\\[0-7]{3}`
const REPLY_CODE = '^[2-5][0-9]{2}-|[^a-z0-9][2-5][0-9]{2}-'
// Else not the end of a longer local part.
const BEGINNING = `(?:(?<![a-z0-9][._+-]?)|(?<=${ESCAPE}|${REPLY_CODE}))`
// Not the beginning of a longer domain; the full stop behind a sentence belongs to none.
const END = '(?![.-]?[a-z0-9])'

/**
 * Every way in which an address may be written within a text, also as part of a URL or of JSON, and not within a longer
 * address: for an expression that both engines read.
 */
export function formsOfAddress(address: string): string {
  const inJson = JSON.stringify(address).slice(1, -1)
  const forms = new Set([address, encodeURIComponent(address), address.replace('@', '%40'), inJson])
  // Every character that means something in an expression.
  const escaped = [...forms].map((form) => form.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'))
  return `${BEGINNING}(?:${escaped.join('|')})${END}`
}

/** Without a key no address was ever erased: nothing equals ''. */
export function erasedAddress(address: string, key: Uint8Array | undefined): string {
  return key === undefined ? '' : `erased:${createHmac('sha256', key).update(address).digest('hex')}`
}

export const isErased = (address: string): boolean => address.startsWith('erased:')

/** Whether any address was erased: a hash for each recipient is only made then. Between two letters, by the index. */
export const FIND_ERASED = `select 1 from suppressions where address >= 'erased:' and address < 'erased;' limit 1`

/** The form in which a message has its address: the domain in lower case, the rest as it is. */
export function comparableAddress(address: string): string {
  const at = address.lastIndexOf('@')
  return address.slice(0, at) + address.slice(at).toLowerCase()
}

/**
 * The form in which an address stands on the suppression list: in small letters, since no server of today tells them
 * from capitals, and whoever opted out is the same person in any spelling.
 */
export const listedAddress = (address: string): string => address.toLowerCase()

/** That form, and the address as it is: older entries may have capitals, and so may what an erased one was made of. */
export const listedForms = (address: string): [listed: string, asItIs: string] => [
  listedAddress(address),
  comparableAddress(address),
]

/** Questions to an index for one address: rows of ordinary mail need about ten. */
const MOST_QUESTIONS = 1_000

/**
 * The spellings, in capitals and small letters, in which a column with an index has an address. The index is asked for
 * the next entry from a spelling on, and where that is another address, from the first spelling behind it on: a second
 * column, in small letters, would cost on every acceptance.
 */
export function createFindSpellings(database: Database, table: string, column: string): (address: string) => string[] {
  const findNext = oneColumn(database)<[string, string], string>(`
    select ${column} from ${table} where ${column} >= ? and ${column} <= ? order by ${column} limit 1`)
  return (address) => {
    const small = listedAddress(address)
    const pairs = small.split('').map(bothCases)
    const last = pairs.map(([, later]) => later).join('')
    const spellings = []
    let from = nextSpelling(pairs, '')
    for (let asked = 0; from !== undefined && asked < MOST_QUESTIONS; asked++) {
      const found = findNext.get(from, last)
      if (found === undefined) break
      const isSpelling = listedAddress(found) === small
      if (isSpelling) spellings.push(found)
      from = nextSpelling(pairs, isSpelling ? `${found}\0` : found)
    }
    return spellings
  }
}

/** A letter as capital and small, in the order of an index. */
function bothCases(small: string): [sooner: string, later: string] {
  const capital = small.toUpperCase()
  if (capital.toLowerCase() !== small || capital.length > 1) return [small, small]
  return capital < small ? [capital, small] : [small, capital]
}

/** The first spelling that does not stand before `text`. */
function nextSpelling(pairs: [sooner: string, later: string][], text: string): string | undefined {
  const firstFrom = (start: number) =>
    pairs
      .slice(start)
      .map(([sooner]) => sooner)
      .join('')
  const differs = pairs.findIndex((pair, at) => !pair.includes(text.charAt(at)))
  const same = differs < 0 ? pairs.length : differs
  if (same === text.length) return text + firstFrom(same)
  // One letter becomes greater, as far behind as possible.
  for (let at = Math.min(same, pairs.length - 1); at >= 0; at--) {
    const greater = pairs[at]?.find((letter) => letter > text.charAt(at))
    if (greater !== undefined) return text.slice(0, at) + greater + firstFrom(at + 1)
  }
  return undefined
}
