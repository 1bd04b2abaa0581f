/**
 * The options that a send and a batch share: tags, metadata, times, pool, stream, tracking, unsubscribing
 * (http/README.md "Sending" and "Unsubscribe"). What is absent has its default. Never throws; a problem is put down,
 * and the value is then of no use.
 */
import { DAY, HOUR, SECOND } from '../../base/clock.ts'
import type { Stream, Unsubscribe } from '../../mail/message.ts'
import { checkText, shown, type FieldProblems } from './field-problems.ts'
import { EVERY_LIST, isListName, LIST_NAME_RULE } from './list-name.ts'
import type { SharedFields } from './send-request.ts'

export interface CheckedOptions {
  tags: Record<string, string>
  metadata: Record<string, unknown>
  stream: Stream
  /** Unix milliseconds; null: now. */
  sendAt: number | null
  /** Milliseconds from the start on; null: that of the stream. */
  lifetime: number | null
  /** null: the domain's. */
  ipPool: string | null
  /** What the request says; the domain says the rest. */
  track: { opens: boolean | undefined; clicks: boolean | undefined }
  unsubscribe: Unsubscribe | null
}

interface OptionFacts {
  /** Where the request names none. */
  defaultStream: Stream
  now: number
  poolNames: readonly string[]
}

const MOST_TAGS = 10
const MOST_TAG_KEY_CHARACTERS = 64
const MOST_TAG_VALUE_CHARACTERS = 256
const MOST_METADATA_BYTES = 4_096
const MOST_DAYS_AHEAD = 30
const LEAST_LIFETIME_SECONDS = 60
const MOST_LIFETIME_SECONDS = (72 * HOUR) / SECOND
/** With the header's name and brackets it stays on one line of mail (RFC 5322 §2.1.1). */
const MOST_URL_CHARACTERS = 900
/** The list of bulk mail that names none. */
const DEFAULT_LIST = 'bulk'

// Printable ASCII, at least one.
const PRINTABLE = /^[ -~]+$/
// The characters of a URI (RFC 3986 §2), so none that could end the angle brackets or the line.
const URL_CHARACTERS = /^https:\/\/[A-Za-z0-9\-._~:/?#[\]@!$&'()*+,;=%]+$/i

export function checkOptions(given: SharedFields, facts: OptionFacts, problems: FieldProblems): CheckedOptions {
  const stream = checkStream(given.stream, facts.defaultStream, problems)
  return {
    tags: checkTags(given.tags ?? {}, problems),
    metadata: given.metadata === undefined ? {} : checkMetadata(given.metadata, problems),
    stream,
    sendAt: checkSendAt(given.sendAt, facts.now, problems),
    lifetime: checkExpiresIn(given.expiresIn, problems),
    ipPool: checkPool(given.ipPool, facts.poolNames, problems),
    track: given.track ?? { opens: undefined, clicks: undefined },
    unsubscribe: checkUnsubscribe(given.unsubscribe, stream, problems),
  }
}

export function checkTags(given: Record<string, unknown>, problems: FieldProblems): Record<string, string> {
  const entries = Object.entries(given)
  // Without a prototype `__proto__` is a key like any other.
  const tags: Record<string, string> = Object.create(null)
  if (entries.length > MOST_TAGS) {
    problems.add('tags', `${entries.length} tags; at most ${MOST_TAGS} are allowed`)
    return tags
  }
  for (const [key, value] of entries) {
    const path = `tags.${shown(key)}`
    const isKey = PRINTABLE.test(key) && key.length <= MOST_TAG_KEY_CHARACTERS
    if (!isKey) problems.add(path, `a key has 1 to ${MOST_TAG_KEY_CHARACTERS} characters of printable ASCII`)
    const isValue =
      typeof value === 'string' && (value === '' || PRINTABLE.test(value)) && value.length <= MOST_TAG_VALUE_CHARACTERS
    if (isValue) tags[key] = value
    else problems.add(path, `must be a string of at most ${MOST_TAG_VALUE_CHARACTERS} characters of printable ASCII`)
  }
  return tags
}

export function checkPool(
  name: string | undefined,
  poolNames: readonly string[],
  problems: FieldProblems,
): string | null {
  if (name === undefined) return null
  if (!poolNames.includes(name)) {
    problems.add('ip_pool', `'${shown(name)}' is no pool; the pools are ${poolNames.join(', ')}`)
  }
  return name
}

function checkStream(name: string | undefined, defaultStream: Stream, problems: FieldProblems): Stream {
  if (name === undefined || name === 'transactional' || name === 'bulk') return name ?? defaultStream
  problems.add('stream', `'${shown(name)}' is no stream; the streams are transactional and bulk`)
  return defaultStream
}

function checkMetadata(given: Record<string, unknown>, problems: FieldProblems): Record<string, unknown> {
  const json = JSON.stringify(given, (key, value: unknown) => {
    checkText('metadata', key, problems)
    if (typeof value === 'string') checkText('metadata', value, problems)
    return value
  })
  const bytes = Buffer.byteLength(json)
  if (bytes > MOST_METADATA_BYTES) {
    problems.add('metadata', `has ${bytes} bytes as JSON; at most ${MOST_METADATA_BYTES} are allowed`)
  }
  return given
}

function checkSendAt(seconds: number | undefined, now: number, problems: FieldProblems): number | null {
  if (seconds === undefined) return null
  const at = seconds * SECOND
  if (!Number.isSafeInteger(seconds)) {
    problems.add('send_at', 'must be a whole number of Unix seconds')
  } else if (at > now + MOST_DAYS_AHEAD * DAY) {
    problems.add('send_at', `is more than ${MOST_DAYS_AHEAD} days ahead (Unix seconds are expected)`)
  }
  return at > now ? at : null
}

function checkExpiresIn(seconds: number | undefined, problems: FieldProblems): number | null {
  if (seconds === undefined) return null
  const isRight = Number.isInteger(seconds) && seconds >= LEAST_LIFETIME_SECONDS && seconds <= MOST_LIFETIME_SECONDS
  if (!isRight) {
    const range = `${LEAST_LIFETIME_SECONDS} to ${MOST_LIFETIME_SECONDS}`
    problems.add('expires_in', `must be a whole number of ${range} seconds`)
  }
  return seconds * SECOND
}

function checkUnsubscribe(
  given: SharedFields['unsubscribe'],
  stream: Stream,
  problems: FieldProblems,
): Unsubscribe | null {
  if (given === false || (given === undefined && stream === 'transactional')) return null
  const { list = DEFAULT_LIST, url = null } = given ?? {}
  if (list === EVERY_LIST) problems.add('unsubscribe.list', `'${EVERY_LIST}' stands for every list and names none`)
  else if (!isListName(list)) problems.add('unsubscribe.list', LIST_NAME_RULE)
  if (url !== null && !isHttpsUrl(url)) {
    const rule = `must be an https address of at most ${MOST_URL_CHARACTERS} characters`
    problems.add('unsubscribe.url', `${rule}; percent-encode spaces, quotes, braces and what is not ASCII`)
  }
  return { list, url }
}

function isHttpsUrl(text: string): boolean {
  if (text.length > MOST_URL_CHARACTERS || !URL_CHARACTERS.test(text)) return false
  const url = URL.parse(text)
  return url !== null && url.hostname !== '' && url.username === '' && url.password === ''
}
