/**
 * Bounces that are prose: which addresses failed, and what the text says about each. One general reader for all servers
 * and languages. It goes by where an address stands: one that opens a paragraph or follows a label says more than one
 * inside a sentence; addresses of the sender or of a help desk say nothing. Linear in the text.
 */
import type { HeaderField } from '../header-fields.ts'
import { findAddresses, type FoundAddress } from './find-addresses.ts'
import { headerOf, type MailPart } from './mail-tree.ts'
import { MOST_SEGMENT_CHARACTERS } from './report-diagnostic.ts'
import type { ReportParts } from './report-parts.ts'
import { CONTACT_LABEL, CONTACT_LINE, FAILURE_NEARBY, OWN_LABEL, RECIPIENT_LABEL } from './wordings.ts'

const MOST_STATED = 1_000
const MOST_LINES_TO_HEADING = 10
/** Of prose; what is behind them is not read. */
const MOST_LINES = 50_000
// A name alone on the line below one that ends in a colon, as servers list their own users.
const LOCAL_NAME = /:[ \t]{0,9}\n(?:[ \t]{0,9}\n)?[ \t]{1,40}([\w.+-]{2,64})[ \t]{0,9}$/m

interface ProseRecipient {
  address: string
  /** What the text says from this address to the next one. */
  text: string
}

/** In the order of the text, each once. `own`, in lower case: hardly the failed ones, such as sender and reporter. */
function readProseRecipients(text: string, own: ReadonlySet<string>): ProseRecipient[] {
  const lines = text.split('\n', MOST_LINES).map(readLine)
  const texts = lines.map((line) => line.text)
  const mentions = findMentions(lines)
  const foreign = mentions.filter((mention) => !own.has(mention.address.toLowerCase()))
  const isForeign = foreign.some((mention) => mention.weight >= WEIGHT.sentence)
  const candidates = isForeign ? foreign : mentions.filter((mention) => mention.weight >= WEIGHT.line)
  const heaviest = candidates.reduce((most, mention) => Math.max(most, mention.weight), 0)
  const heavy = candidates.filter((mention) => mention.weight === heaviest && heaviest > 0)
  // Of an address that comes more than once the first mention.
  const chosen = [...Map.groupBy(heavy, ({ address }) => address.toLowerCase()).values()].flatMap(
    ([first]) => first ?? [],
  )
  return chosen.map((mention, index) => ({
    address: mention.address,
    text: textAbout(texts, mention, chosen[index - 1]?.line, chosen[index + 1]?.line),
  }))
}

/**
 * What the text says of each of these recipients, in their order: from where it names one to where it names another.
 * A recipient may have several names. What names none of them is about nobody.
 */
export function readProseAbout(text: string, names: readonly (readonly string[])[]): (string | undefined)[] {
  const owners = new Map(names.flatMap((own, index) => own.map((name) => [name.toLowerCase(), index])))
  const lines = text.split('\n', MOST_LINES).map(readLine)
  const texts = lines.map((line) => line.text)
  const mentions = findMentions(lines).flatMap((mention) => {
    const owner = owners.get(mention.address.toLowerCase())
    return owner === undefined ? [] : [{ ...mention, owner }]
  })
  const placesOf = Map.groupBy(mentions.keys(), (place) => mentions[place]?.owner)
  /** The nearest line of another recipient in this direction. */
  const lineOfOther = (place: number, step: 1 | -1): number | undefined => {
    const { owner, line } = mentions[place] ?? {}
    let other = place + step
    while (mentions[other] !== undefined && (mentions[other]?.owner === owner || mentions[other]?.line === line)) {
      other += step
    }
    return mentions[other]?.line
  }
  return names.map((_, index) => {
    const [place] = (placesOf.get(index) ?? []).toSorted(
      (one, other) => (mentions[other]?.weight ?? 0) - (mentions[one]?.weight ?? 0),
    )
    const first = place === undefined ? undefined : mentions[place]
    if (first === undefined || place === undefined) return undefined
    const next = lineOfOther(place, 1)
    return textAbout(texts, first, lineOfOther(place, -1), next === undefined ? next : headingOf(texts, next))
  })
}

/** The line that leads to this one, such as `The following address failed:`; itself where there is none. */
function headingOf(texts: readonly string[], line: number): number {
  let before = line - 1
  while (before > line - MOST_LINES_TO_HEADING && texts[before]?.trim() === '') before -= 1
  return texts[before]?.trimEnd().endsWith(':') === true ? before : line
}

/** How much a place says; only the addresses at the heaviest places count. */
const WEIGHT = {
  /** Opens a paragraph or a list item, or stands behind a label such as `Recipient:`. */
  opening: 5,
  /** Opens a line in the middle of a paragraph, or stands in a reply or command of the dialogue. */
  line: 4,
  /** Behind `to`, `for`, `address` and the like, in a sentence about a failure. */
  object: 3,
  /** Elsewhere in a sentence about a failure. */
  sentence: 2,
  /** In a repeated `To:` line of the message. */
  repeated: 1,
  none: 0,
} as const

interface TextLine {
  /** Without quotation marks in front. */
  text: string
  indentation: number
  addresses: FoundAddress[]
  isAboutFailure: boolean
}

interface Mention {
  address: string
  line: number
  weight: number
}

const MOST_LINE_CHARACTERS = 1_000
const MOST_MENTIONS = 2_000
const LABEL_CHARACTERS = 60
// Nothing but marks of a list, brackets and quotes in front of the address.
const OPENING_MARKS = /^[\s"'<*•·>[-]*$/
// The codes of a reply, or our command, in front of it.
const DIALOGUE_IN_FRONT = /^\s*(?:<<<|>>>)?\s*[245]\d\d[ -](?:[245]\.\d{1,3}\.\d{1,3} )?<?$|\brcpt to:\s*<?$/i
// A word that makes the address behind it the object of the sentence, or a bracket.
const OBJECT_IN_FRONT =
  /(?:\b(?:to|for|recipients?|address|addressed|addresses|user|userid|mailbox|account|list|group|inbox)\b\W{0,4}|\()$/i
// A line of dashes, equal signs and the like, words between them allowed.
const RULER = /^\s*[-=*_#|+]{3,}/

function readLine(raw: string): TextLine {
  // Quotation marks of a forwarded report; the dialogue of a session keeps its arrows.
  const text = raw.slice(0, MOST_LINE_CHARACTERS).replace(/^> ?(?!>)/, '')
  return {
    text,
    indentation: text.length - text.trimStart().length,
    addresses: findAddresses(text),
    isAboutFailure: FAILURE_NEARBY.test(text),
  }
}

function findMentions(lines: readonly TextLine[]): Mention[] {
  const mentions: Mention[] = []
  let previousOpened = false
  for (const [index, line] of lines.entries()) {
    let opened = false
    for (const [place, found] of line.addresses.entries()) {
      const next = line.addresses[place + 1]
      // An address used as the name in front of another.
      if (next !== undefined && /^["']?\s{0,9}<$/.test(line.text.slice(found.end, next.start))) continue
      if (mentions.length >= MOST_MENTIONS) return mentions
      const weight = weigh(lines, index, found, previousOpened)
      opened ||= weight === WEIGHT.opening
      mentions.push({ address: found.address, line: index, weight })
    }
    previousOpened = opened
  }
  return mentions
}

function weigh(lines: readonly TextLine[], index: number, found: FoundAddress, previousOpened: boolean): number {
  const before = lines[index]?.text.slice(0, found.start) ?? ''
  const label = before.slice(-LABEL_CHARACTERS)
  if (isContact(lines, index, label)) return WEIGHT.none
  if (OWN_LABEL.test(label)) return /\bto\b/i.test(label) ? WEIGHT.repeated : WEIGHT.none
  if (RECIPIENT_LABEL.test(label)) return WEIGHT.opening
  if (OPENING_MARKS.test(before)) {
    return previousOpened || opensParagraph(lines, index, found) ? WEIGHT.opening : WEIGHT.line
  }
  if (DIALOGUE_IN_FRONT.test(label)) return WEIGHT.line
  // Two lines before, and one behind.
  const sentence = lines.slice(Math.max(0, index - 2), index + 2)
  if (!sentence.some((line) => line.isAboutFailure)) return WEIGHT.none
  return OBJECT_IN_FRONT.test(label) ? WEIGHT.object : WEIGHT.sentence
}

/** First line of a paragraph, less indented than the line before, or an address with a colon right behind it. */
function opensParagraph(lines: readonly TextLine[], index: number, found: FoundAddress): boolean {
  const line = lines[index]
  const previous = lines[index - 1]
  if (line === undefined || previous === undefined || previous.text.trim() === '') return true
  if (previous.text.trimEnd().endsWith(':') && previous.addresses.length === 0) return true
  const hasColon = /^["'>\])]{0,2}:/.test(line.text.slice(found.end, found.end + 3))
  return hasColon || line.indentation < previous.indentation || RULER.test(previous.text)
}

/** Where the text tells whom to ask, in this line or at the end of the one before. */
function isContact(lines: readonly TextLine[], index: number, label: string): boolean {
  if (CONTACT_LABEL.test(label)) return true
  const previous = [lines[index - 1], lines[index - 2]].find((line) => line !== undefined && line.text.trim() !== '')
  return CONTACT_LINE.test(previous?.text.slice(-LABEL_CHARACTERS) ?? '')
}

/**
 * From the line of the address to the next one. In a transcript the reply stands above the line that names the
 * recipient, but below a command of ours; an address at the end of its paragraph may have the reason above it.
 */
function textAbout(
  lines: readonly string[],
  { line, weight }: Mention,
  previous: number | undefined,
  next: number | undefined,
): string {
  const piece = (start: number, end: number): string => {
    let last = start
    for (let characters = 0; last < end && characters < MOST_SEGMENT_CHARACTERS; last += 1) {
      characters += (lines[last]?.length ?? 0) + 1
    }
    return lines.slice(start, last).join('\n')
  }
  const isCommand = lines[line]?.trimStart().startsWith('>>>') === true
  if (weight !== WEIGHT.line || isCommand) return piece(line, Math.max(next ?? lines.length, line + 1))
  if (previous !== undefined || next !== undefined) return piece((previous ?? -1) + 1, line + 1)
  // The whole paragraph, and all behind it.
  let start = line
  while (start > 0 && lines[start - 1]?.trim() !== '') start -= 1
  return piece(start, lines.length)
}

/**
 * Whom a report without delivery status fields is about: header fields, prose and the message it returns, in this
 * order. An empty list means that only the address the report came to can tell.
 */
export function findFailedAddresses(mail: MailPart, parts: ReportParts): ProseRecipient[] {
  const inProse = readProseRecipients(parts.text, ownAddresses(mail, parts))
  // A field of Exim and Gmail.
  const stated = addressesIn(mail, ['x-failed-recipients']).slice(0, MOST_STATED)
  if (stated.length > 0) {
    const whole = stated.length === 1 ? parts.text : ''
    const texts = new Map(inProse.map(({ address, text }) => [address.toLowerCase(), text]))
    return stated.map((address) => ({ address, text: texts.get(address.toLowerCase()) ?? whole }))
  }
  if (inProse.length > 0) return inProse
  const repeated = returnedRecipients(parts)
  const addresses = repeated.length > 0 ? repeated : localNames(mail, parts)
  return addresses.map((address) => ({ address, text: addresses.length === 1 ? parts.text : '' }))
}

/** Sender and reporter, in lower case: hardly the failed address. */
function ownAddresses(mail: MailPart, { returned }: ReportParts): Set<string> {
  const ofReport = addressesIn(mail, ['to', 'from', 'reply-to', 'return-path', 'delivered-to', 'sender'])
  const ofMessage = addressesIn({ headers: returned ?? [] }, ['from', 'reply-to', 'return-path', 'sender', 'errors-to'])
  return new Set([...ofReport, ...ofMessage].map((address) => address.toLowerCase()))
}

function addressesIn(mail: { headers: readonly HeaderField[] }, names: readonly string[]): string[] {
  return names.flatMap((name) => findAddresses(headerOf(mail, name))).map(({ address }) => address)
}

/** Those of the first field that has any. */
function returnedRecipients({ returned }: ReportParts): string[] {
  const fields = { headers: returned ?? [] }
  const found = ['x-failed-recipients', 'x-envelope-to', 'envelope-to', 'to'].map((name) => addressesIn(fields, [name]))
  return [...new Set(found.find((addresses) => addresses.length > 0))].slice(0, MOST_STATED)
}

/** A name without domain is a mailbox of the server that writes. */
function localNames(mail: MailPart, { text }: ReportParts): string[] {
  const name = LOCAL_NAME.exec(text)?.[1]
  const domain = addressesIn(mail, ['from'])[0]?.split('@')[1]
  return name === undefined || domain === undefined ? [] : [`${name}@${domain.toLowerCase()}`]
}
