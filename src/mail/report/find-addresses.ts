/**
 * Addresses in running text and in header values, with where they stand. Looser than the grammar of `address.ts`, which
 * decides what we send to: reports come from any system. Linear: from every at sign at most 64 octets are looked at to
 * the left and 255 to the right (RFC 5321 §4.5.3.1).
 */

export interface FoundAddress {
  address: string
  /** Position of the first character, an angle bracket or quote in front not counted. */
  start: number
  /** Position behind the last character. */
  end: number
}

const MOST_LOCAL_CHARACTERS = 64
const MOST_DOMAIN_CHARACTERS = 255

// What may stand before the at sign: atext of RFC 5322 §3.2.3, dots, letters of other scripts.
const LOCAL_CHARACTER = /[\w.!#$%&'*+/=?^`{|}~\u00a1-\uffff-]/
// What may stand behind it.
const DOMAIN_CHARACTER = /[\w.\u00a1-\uffff#-]/
// At least two labels; the number sign is how some servers mark a wrong one.
const DOMAIN = /^#?[\w\u00a1-\uffff][\w\u00a1-\uffff-]*(?:\.[\w\u00a1-\uffff-]+)+$/
// What sticks to an address as punctuation.
const LEADING_PUNCTUATION = /^['`./*=|~{}!?&#-]+/
const TRAILING_PUNCTUATION = /[.'-]+$/

export function findAddresses(text: string): FoundAddress[] {
  const found: FoundAddress[] = []
  let behind = 0
  for (let at = text.indexOf('@'); at !== -1; at = text.indexOf('@', at + 1)) {
    const address = addressAround(text, at, behind)
    if (address === undefined) continue
    found.push(address)
    behind = address.end
  }
  return found
}

function addressAround(text: string, at: number, notBefore: number): FoundAddress | undefined {
  const leftmost = Math.max(notBefore, at - MOST_LOCAL_CHARACTERS)
  let start = text[at - 1] === '"' ? quoteStart(text, at, leftmost) : at
  if (start === at) while (start > leftmost && LOCAL_CHARACTER.test(text[start - 1] ?? '')) start--
  start += LEADING_PUNCTUATION.exec(text.slice(start, at))?.[0].length ?? 0
  const rightmost = Math.min(text.length, at + 1 + MOST_DOMAIN_CHARACTERS)
  let end = at + 1
  while (end < rightmost && DOMAIN_CHARACTER.test(text[end] ?? '')) end++
  const domain = text.slice(at + 1, end).replace(TRAILING_PUNCTUATION, '')
  if (start >= at || !DOMAIN.test(domain)) return undefined
  return { address: `${text.slice(start, at)}@${domain}`, start, end: at + 1 + domain.length }
}

/** A quoted local part: where its first quote stands, or the at sign when there is none. */
function quoteStart(text: string, at: number, leftmost: number): number {
  const quote = text.lastIndexOf('"', at - 2)
  return quote >= leftmost && !text.slice(quote, at).includes('\n') ? quote : at
}
