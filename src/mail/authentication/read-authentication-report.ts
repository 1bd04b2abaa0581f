/**
 * Finds the DMARC or TLS report in a mail and reads it (inbound/README.md "DMARC and TLS reports"). The file is known by
 * its bytes, since types and names differ: gzip, zip, XML or JSON. Of several files the first that can be read counts. Needs
 * at most some 50 MiB and a second; never throws.
 */
import { decodeTransfer } from '../report/decode-text.ts'
import { headerOf, readMailTree, type MailPart } from '../report/mail-tree.ts'
import { refused, type AuthenticationReading } from './authentication-report.ts'
import { readDmarcReport } from './read-dmarc-report.ts'
import { readTlsReport } from './read-tls-report.ts'
import { isPacked, unpackFile } from './unpack-file.ts'

const MOST_FILES = 3
const MOST_XML_BYTES = 10 * 1_024 * 1_024
/** A document of JSON needs many times its size in memory. */
const MOST_JSON_BYTES = 1_024 * 1_024
const LOOKED_AT_BYTES = 1_024

/** `mail`: its first bytes do. */
export function readAuthenticationReport(mail: Uint8Array): AuthenticationReading {
  let first: AuthenticationReading = { kind: 'none' }
  let files = 0
  for (const part of leavesOf(readMailTree(mail))) {
    if (files >= MOST_FILES || !mayBeReport(part)) continue
    const reading = readFile(decodeTransfer(part.body, headerOf(part, 'content-transfer-encoding')))
    if (reading.kind === 'none') continue
    files++
    if (reading.kind !== 'refused') return reading
    if (first.kind === 'none') first = reading
  }
  return first
}

function leavesOf(part: MailPart): MailPart[] {
  return part.parts.length === 0 ? [part] : part.parts.flatMap(leavesOf)
}

// What people read, and messages: a report in them has to be named as a file.
const PROSE = /^(?:text\/(?:plain|html)|multipart\/.*|message\/.*)$/
// The name of a file, as the last word of a header field's parameter.
const FILE_NAME = /\.(?:xml|json|gz|zip)"?\s*(?:;|$)/i

function mayBeReport(part: MailPart): boolean {
  if (!PROSE.test(part.type)) return true
  return FILE_NAME.test(headerOf(part, 'content-disposition')) || FILE_NAME.test(headerOf(part, 'content-type'))
}

function readFile(file: Buffer): AuthenticationReading {
  const isXml = startsWith(file, '<')
  if (!isPacked(file) && !isXml && !startsWith(file, '{')) return { kind: 'none' }
  const content = unpackFile(file, MOST_XML_BYTES)
  if (typeof content === 'string') return refused(content)
  if (startsWith(content, '<')) return readDmarcReport(content)
  if (!startsWith(content, '{')) return refused('the file is neither XML nor JSON')
  if (content.length > MOST_JSON_BYTES) return refused(`the JSON of the report has more than ${MOST_JSON_BYTES} bytes`)
  return readTlsReport(content)
}

function startsWith(file: Buffer, character: string): boolean {
  // White space counts the byte order mark in.
  return file.toString('utf8', 0, LOOKED_AT_BYTES).trimStart().startsWith(character)
}
