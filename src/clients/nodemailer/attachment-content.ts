/**
 * What a nodemailer attachment or body may be given as -> its bytes: text or bytes, a stream, a file, a data: or
 * http(s) URL. Reading ends with an error as soon as there is more than the limit. Stands alone, beside
 * `nodemailer-transport.ts`.
 */
import { createReadStream } from 'node:fs'
import { Readable } from 'node:stream'

export interface GivenContent {
  content?: unknown
  path?: unknown
  href?: unknown
  encoding?: unknown
}

export interface ReadingRules {
  mostBytes: number
  /** For errors: `attachments[0]`. */
  name: string
  /** nodemailer's disableFileAccess and disableUrlAccess: a message that others wrote must not read our disk. */
  allowsFiles: boolean
  allowsUrls: boolean
}

export class ContentError extends Error {
  override name = 'ContentError'
}

export async function readContent(given: GivenContent, rules: ReadingRules): Promise<Buffer> {
  const { content, path, href, encoding } = given
  // As nodemailer does: a place comes before a content.
  if (typeof path === 'string' && path !== '') return fromPath(path, rules)
  if (typeof href === 'string' && href !== '') return fromUrl(href, rules)
  if (typeof content === 'string') return limited(Buffer.from(content, encodingOf(encoding)), rules)
  if (content instanceof Uint8Array) return limited(Buffer.from(content), rules)
  if (isIterable(content)) return collect(content, rules)
  if (isMap(content)) return readContent(content, rules)
  if (content instanceof URL || path instanceof URL) return fromUrl(String(content ?? path), rules)
  throw new ContentError(`${rules.name}: there is no content: give content, path or href`)
}

/** The name of an attachment that was given none: that of its file. */
export function nameOf({ path, href }: GivenContent): string | undefined {
  const place = [path, href].map(placeOf).find((text) => text !== undefined && !text.startsWith('data:'))
  if (place === undefined) return undefined
  // Of a URL without its query; a file may have # and ? in its name.
  const whole = URL_SCHEME.test(place) ? place.split(/[?#]/, 1)[0] : place
  const name = whole?.split(/[/\\]/).at(-1)
  return name === '' ? undefined : name
}

function placeOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : value instanceof URL ? String(value) : undefined
}

// A scheme: two characters at least, which no drive letter has.
const URL_SCHEME = /^[a-z][a-z0-9+.-]+:/i
// data:[type][;parameters][;base64],content (RFC 2397 §3).
const DATA_URL = /^data:([^,]*?)(;base64)?,(.*)$/is

async function fromPath(path: string, rules: ReadingRules): Promise<Buffer> {
  const [, , base64, data] = DATA_URL.exec(path) ?? []
  if (data !== undefined) {
    return limited(Buffer.from(decodeURIComponent(data), base64 === undefined ? 'utf8' : 'base64'), rules)
  }
  if (URL_SCHEME.test(path)) return fromUrl(path, rules)
  if (!rules.allowsFiles) throw new ContentError(`${rules.name}: files may not be read (disableFileAccess)`)
  return collect(createReadStream(path), rules)
}

/** Milliseconds for the whole content of a URL. */
const READ_WITHIN = 60_000

async function fromUrl(url: string, rules: ReadingRules): Promise<Buffer> {
  if (!rules.allowsUrls) throw new ContentError(`${rules.name}: URLs may not be read (disableUrlAccess)`)
  if (!/^https?:/i.test(url)) throw new ContentError(`${rules.name}: ${url} is no http or https URL`)
  const answer = await fetch(url, { signal: AbortSignal.timeout(READ_WITHIN) })
  if (!answer.ok || answer.body === null) throw new ContentError(`${rules.name}: ${url} answered ${answer.status}`)
  return collect(Readable.fromWeb(answer.body), rules)
}

async function collect(pieces: AsyncIterable<unknown>, rules: ReadingRules): Promise<Buffer> {
  const read: Buffer[] = []
  let bytes = 0
  // Leaving the loop early closes the stream.
  for await (const piece of pieces) {
    const chunk = piece instanceof Uint8Array ? Buffer.from(piece) : Buffer.from(String(piece))
    bytes += chunk.length
    if (bytes > rules.mostBytes) throw tooLarge(rules)
    read.push(chunk)
  }
  return Buffer.concat(read)
}

function limited(content: Buffer, rules: ReadingRules): Buffer {
  if (content.length > rules.mostBytes) throw tooLarge(rules)
  return content
}

function tooLarge({ name, mostBytes }: ReadingRules): ContentError {
  return new ContentError(`${name}: more than ${mostBytes} bytes`)
}

function encodingOf(encoding: unknown): BufferEncoding {
  const name = typeof encoding === 'string' ? encoding.replaceAll(/[-_\s]/g, '') : ''
  return Buffer.isEncoding(name) ? name : 'utf8'
}

function isIterable(value: unknown): value is AsyncIterable<unknown> {
  return typeof value === 'object' && value !== null && Symbol.asyncIterator in value
}

function isMap(value: unknown): value is GivenContent {
  return typeof value === 'object' && value !== null && ('path' in value || 'href' in value || 'content' in value)
}
