/**
 * The name of a sending domain as it may be given, and the labels made for it (http/README.md "Domains"). Pure; a name
 * that is not accepted is a result with the reason, never an error.
 */
import { ipFamily } from '../base/ip-address.ts'
import { domainToAscii } from '../mail/address.ts'
import { isPublicSuffix } from '../mail/organizational-domain.ts'

type DomainNameReading = { ok: true; name: string } | { ok: false; problem: string }

/** RFC 1035 §2.3.4, without the trailing dot. */
export const MOST_NAME_CHARACTERS = 253
// One host label: letters, digits and hyphens, no hyphen at either end, 63 characters at most (RFC 1123 §2.1).
const HOST_LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/

/** Lower-case A-labels of the name, one trailing dot removed. */
export function readDomainName(text: string): DomainNameReading {
  // Spaces around it, and one dot at the very end; a line break or a tab is a mistake and stays.
  const given = text.replace(/^ +| +$/g, '').replace(/\.$/, '')
  if (given === '') return refuse('is empty')
  if (given.includes('*')) return refuse('is a wildcard')
  if (ipFamily(given.replace(/^\[|\]$/g, '')) !== undefined) return refuse('is an IP address') // without its brackets
  const name = domainToAscii(given)
  if (name === undefined) return refuse('is not a valid domain name')
  if (name.length > MOST_NAME_CHARACTERS) return refuse(`is longer than ${MOST_NAME_CHARACTERS} characters`)
  if (!name.includes('.')) return refuse('needs at least two labels')
  // Digits alone behind the last dot: also the other ways to write an IP address, as `0300.0.2.1` (RFC 3696 §2).
  if (/\.[0-9]+$/.test(name)) return refuse('is an IP address or ends in a number')
  if (isPublicSuffix(name)) return refuse('is a public suffix, under which others register their domains')
  return { ok: true, name }
}

export function isHostLabel(text: string): boolean {
  return HOST_LABEL.test(text)
}

function refuse(problem: string): DomainNameReading {
  return { ok: false, problem }
}
