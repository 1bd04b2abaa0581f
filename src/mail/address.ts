/**
 * Reads one email address, with or without a display name, by one grammar of our own. What is accepted has a single
 * meaning everywhere: `mailbox.address` is what RCPT TO carries, what is signed for and what stands in the header.
 * Parsers disagree about quoted local parts, comments, routes and groups and have sent mail elsewhere because of it, so
 * those are refused, also where a standard allows them. Time is linear in the input. Never throws: a refusal is a
 * value, `problem` a sentence part that goes on from the field's name. RFC 5321 §4.1.2, RFC 6531 §3.3, RFC 5322 §3.4,
 * RFC 5890 §2.3.2.1.
 */
import { domainToASCII, domainToUnicode } from 'node:url'
import { ipFamily } from '../base/ip-address.ts'
import type { Mailbox } from './message.ts'
import { isSimulated } from './simulator.ts'

export type ParsedAddress = { ok: true; mailbox: Mailbox; domain: string } | AddressRefusal

/** syntax: no address by RFC 5321. policy: valid there, and still not taken. */
interface AddressRefusal {
  ok: false
  problem: string
  refusal: 'syntax' | 'policy'
}

/** Ours: a display name of several hundred characters around the longest address. */
export const MOST_ADDRESS_INPUT_CHARACTERS = 1_000
/** RFC 5321 §4.5.3.1.1 and §4.5.3.1.3 (256 octets of path less its angle brackets), RFC 1035 §2.3.4. */
const MOST_LOCAL_PART_OCTETS = 64
const MOST_ADDRESS_OCTETS = 254
const MOST_DOMAIN_CHARACTERS = 253
const MOST_SHOWN_CHARACTERS = 80

/** RFC 2606 §2 and RFC 6761: names that never lead to a mail server. */
const RESERVED_TOP_NAMES = ['invalid', 'localhost', 'test', 'example']

// Every C0 and C1 control and DEL.
const CONTROL = /\p{Cc}/u
// The characters of an RFC 5321 atom, and the letters, marks, digits and symbols of every script (RFC 6531).
const ATOM = /^(?:[A-Za-z0-9!#$%\x26'*+\-\/=?^_`\{\|\}~]|[[\p{L}\p{M}\p{N}\p{S}]--\p{ASCII}])+$/v
// A whole quoted string of RFC 5321 §4.1.2: printable ASCII, quotes and backslashes escaped.
const QUOTED_STRING = /^"(?:[ !#-[\]-~]|\\[ -~])*"$/
// RFC 2047 §2. §5 keeps it out of addresses, and programs read it there all the same.
const ENCODED_WORD = /=\?[^?]+\?[bq]\?[^?]*\?=/i
// Characters that a display name may only have inside double quotes (RFC 5322 specials, the dot excepted).
const NAME_SPECIAL = /[()<>[\]:;@\\,"]/
// A letter-digit-hyphen label of 1 to 63 characters.
const LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/
// A local part of RFC 5321 in plain ASCII, as nearly all are; within its length.
const PLAIN_LOCAL_PART = /^(?=.{1,64}$)[A-Za-z0-9!#$%&'*+\-/=?^_`{|}~]+(?:\.[A-Za-z0-9!#$%&'*+\-/=?^_`{|}~]+)*$/
/** In the place of bytes that were no UTF-8: nobody knows any more which characters they were. */
const REPLACEMENT = '\ufffd'
// Only digits.
const DIGITS = /^\d+$/

/** `allowReservedNames`: whether names under `.test`, `.example`, `.invalid` and `.localhost` may be used. */
export function parseAddress(text: string, policy: { allowReservedNames: boolean }): ParsedAddress {
  if (text.length > MOST_ADDRESS_INPUT_CHARACTERS) {
    return refuse(`is too long: ${text.length} characters, at most ${MOST_ADDRESS_INPUT_CHARACTERS}`)
  }
  const control = CONTROL.exec(text)?.[0].charCodeAt(0)
  if (control !== undefined) {
    return refuse(`has the control character U+${control.toString(16).toUpperCase().padStart(4, '0')}`)
  }
  if (!text.isWellFormed()) return refuse('has an unpaired surrogate')
  const split = splitDisplayName(trimSpaces(text))
  if ('problem' in split) return split
  const read = readAddress(split.address)
  if ('problem' in read) return read
  const { localPart, domain } = read
  const address = `${localPart}@${domain}`
  const refused = policyProblem(read, policy.allowReservedNames)
  if (refused !== undefined) return refuse(`${shown(address)} ${refused}`, 'policy')
  return { ok: true, mailbox: { name: split.name, address }, domain }
}

/**
 * The lower-case A-labels of a host name, or undefined when it is not valid. A Unicode name must come back unchanged
 * from the conversion: a soft hyphen, a full-width letter or another dot would be mapped away without a word, and the
 * mail would go to another domain than the one that was written.
 */
export function domainToAscii(text: string): string | undefined {
  if (text.length > MOST_DOMAIN_CHARACTERS) return undefined
  const lower = text.normalize('NFC').toLowerCase()
  const isPlain = lower.split('.').every((label) => LABEL.test(label) && !label.startsWith('xn--'))
  if (isPlain) return lower
  const ascii = domainToASCII(lower)
  const isHostName = ascii.length <= MOST_DOMAIN_CHARACTERS && ascii.split('.').every((label) => LABEL.test(label))
  if (!isHostName) return undefined
  const unicode = domainToUnicode(ascii)
  const isUnchanged = lower === ascii || lower === unicode
  // A label that stays encoded is no A-label: it only looks like one.
  const isDecoded = unicode.split('.').every((label) => !label.startsWith('xn--'))
  return isUnchanged && isDecoded && domainToASCII(unicode) === ascii ? ascii : undefined
}

/** `user@host`, `<user@host>`, `Name <user@host>`, `"Name" <user@host>` or `user@host <user@host>`. */
function splitDisplayName(text: string): Mailbox | AddressRefusal {
  if (text === '') return refuse('is empty')
  if (text.startsWith('"')) {
    const end = endOfQuotedString(text)
    const rest = end === undefined ? '' : trimSpaces(text.slice(end))
    if (end === undefined || !rest.startsWith('<')) return { name: null, address: text }
    // A backslash and the character it escapes.
    return inAngleBrackets(rest, text.slice(1, end - 1).replace(/\\(.)/gu, '$1'))
  }
  const open = text.indexOf('<')
  if (open < 0) return { name: null, address: text }
  const name = trimSpaces(text.slice(0, open))
  // Programs write the address twice; whichever of the two is read, it is the same.
  if (text.slice(open) === `<${name}>`) return { name: null, address: name }
  const special = NAME_SPECIAL.exec(name)?.[0]
  if (special !== undefined) {
    return refuse(
      `${shown(text)} has '${special}' in the display name: give exactly one address, ` +
        'and put a name with special characters in double quotes',
    )
  }
  return inAngleBrackets(text.slice(open), name)
}

function inAngleBrackets(text: string, name: string): Mailbox | AddressRefusal {
  const address = text.slice(1, -1)
  if (!text.endsWith('>') || address.includes('<') || address.includes('>')) {
    return refuse(`${shown(text)} is not one address in angle brackets, as in Name <user@example.com>`)
  }
  return { name: trimSpaces(name) === '' ? null : name, address }
}

/** The index behind the closing quote of the string that `text` opens with. */
function endOfQuotedString(text: string): number | undefined {
  for (let index = 1; index < text.length; index++) {
    const character = text.charAt(index)
    if (character === '"') return index + 1
    if (character === '\\') index++
  }
  return undefined
}

interface AddressParts {
  localPart: string
  /** A-labels, or an address literal with its brackets. */
  domain: string
}

function readAddress(text: string): AddressParts | AddressRefusal {
  const refuseText = (problem: string): AddressRefusal => refuse(`${shown(text)} ${problem}`)
  const found = splitAtSign(text)
  if (typeof found === 'string') return refuseText(found)
  const { localPart } = found
  const localProblem = localPartProblem(localPart)
  if (localProblem !== undefined) return refuseText(localProblem)
  if (found.domain.startsWith('[')) {
    return isAddressLiteral(found.domain) ? found : refuseText('has something in square brackets that is no IP address')
  }
  const domain = domainToAscii(found.domain)
  if (domain === undefined) return refuseText(domainProblem(found.domain))
  const octets = Buffer.byteLength(localPart) + 1 + domain.length
  const isLong = octets > MOST_ADDRESS_OCTETS
  return isLong ? refuseText(`is too long: ${octets} octets, at most ${MOST_ADDRESS_OCTETS}`) : { localPart, domain }
}

/** Its two parts, or what is wrong. */
function splitAtSign(text: string): AddressParts | string {
  const quotedEnd = text.startsWith('"') ? endOfQuotedString(text) : 0
  if (quotedEnd === undefined) return 'has a quote that is not closed'
  const at = text.indexOf('@', quotedEnd)
  if (at < 0) {
    const hint = text.normalize('NFKC').includes('@') ? ', only a character that looks like one' : ''
    return `has no '@'${hint}`
  }
  if (at === 0 && text.includes(':')) return 'has a source route'
  if (text.includes(',')) return 'has a comma: give exactly one address'
  if (text.includes(';')) return 'has a semicolon: a group is not one address'
  const domain = text.slice(at + 1)
  if (domain.includes('@')) return `has two '@' signs`
  return { localPart: text.slice(0, at), domain }
}

function localPartProblem(localPart: string): string | undefined {
  if (PLAIN_LOCAL_PART.test(localPart)) return undefined
  if (localPart === '') return "has nothing before the '@'"
  if (Buffer.byteLength(localPart) > MOST_LOCAL_PART_OCTETS) {
    return `has more than ${MOST_LOCAL_PART_OCTETS} octets before the '@'`
  }
  if (QUOTED_STRING.test(localPart)) return undefined
  if (localPart.includes(REPLACEMENT)) return "has a character before the '@' that was not sent in UTF-8"
  if (localPart.includes('(') || localPart.includes(')')) return 'has a comment in parentheses'
  if (localPart.includes(' ')) return 'has a space'
  if (localPart.startsWith('.') || localPart.endsWith('.')) return "has a dot at the wrong end before the '@'"
  if (localPart.includes('..')) return "has two dots in a row before the '@'"
  // What a receiver's normalisation would turn into another structure must not look harmless here.
  const isPlain = isDotString(localPart) && isDotString(localPart.normalize('NFKC'))
  return isPlain ? undefined : "has a character that is not allowed before the '@'"
}

function isDotString(text: string): boolean {
  return text.split('.').every((atom) => ATOM.test(atom))
}

function domainProblem(domain: string): string {
  if (domain === '') return "has nothing after the '@'"
  if (domain.includes('(') || domain.includes(')')) return 'has a comment in parentheses'
  if (domain.includes(' ')) return 'has a space'
  // Anything beyond ASCII.
  return /[^\u0020-\u007e]/.test(domain)
    ? 'has a domain with characters that are not allowed in one or would be changed to others'
    : 'has no valid domain: letters, digits and hyphens in labels of 1 to 63, separated by single dots'
}

/** RFC 5321 §4.1.3: an IPv4 address, or `IPv6:` and an IPv6 address. */
function isAddressLiteral(text: string): boolean {
  const content = text.endsWith(']') ? text.slice(1, -1) : ''
  return content.toLowerCase().startsWith('ipv6:') ? ipFamily(content.slice(5)) !== undefined : ipFamily(content) === 4
}

function policyProblem({ localPart, domain }: AddressParts, allowReservedNames: boolean): string | undefined {
  if (localPart.startsWith('"')) return 'has a quoted local part, which servers read differently'
  if (ENCODED_WORD.test(localPart)) return "has an encoded word before the '@', which programs show as another address"
  if (domain.startsWith('[')) return 'has an IP address in place of a domain'
  const labels = domain.split('.')
  const top = labels.at(-1) ?? ''
  if (labels.length < 2) return 'has a domain without a dot'
  if (DIGITS.test(top)) return 'has a domain that ends in a number'
  // A simulated recipient may be used everywhere: our own capture server answers.
  if (allowReservedNames || isSimulated(domain) || !RESERVED_TOP_NAMES.includes(top)) return undefined
  return `is under the reserved name .${top}, which no mail server has`
}

function refuse(problem: string, refusal: AddressRefusal['refusal'] = 'syntax'): AddressRefusal {
  return { ok: false, problem, refusal }
}

/** Only U+0020: to drop any other white space would be to map something away. */
function trimSpaces(text: string): string {
  let start = 0
  let end = text.length
  while (start < end && text.charAt(start) === ' ') start++
  while (end > start && text.charAt(end - 1) === ' ') end--
  return text.slice(start, end)
}

function shown(text: string): string {
  const characters = [...text]
  const end = characters.length > MOST_SHOWN_CHARACTERS ? '…' : ''
  return `'${characters.slice(0, MOST_SHOWN_CHARACTERS).join('')}${end}'`
}
