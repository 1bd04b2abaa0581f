/**
 * Whom a report without delivery status fields is about: header fields, prose and the message it returns, in this
 * order.
 *
 * Pure and linear. An empty list means that only the address the report came to can tell.
 */
import { findAddresses } from './find-addresses.ts'
import type { HeaderField } from '../header-fields.ts'
import { headerOf, type MailPart } from './mail-tree.ts'
import type { ReportParts } from './report-parts.ts'
import { readProseRecipients, type ProseRecipient } from './unstructured-bounce.ts'

const MOST_STATED = 1_000

export function findFailedAddresses(mail: MailPart, parts: ReportParts): ProseRecipient[] {
  const inProse = readProseRecipients(parts.text, ownAddresses(mail, parts))
  // A field of Exim and Gmail.
  const stated = addressesIn(mail, ['x-failed-recipients']).slice(0, MOST_STATED)
  if (stated.length > 0) {
    const texts = new Map(inProse.map(({ address, text }) => [address.toLowerCase(), text]))
    return stated.map((address) => ({ address, text: texts.get(address.toLowerCase()) ?? parts.text }))
  }
  if (inProse.length > 0) return inProse
  const repeated = returnedRecipients(parts)
  const addresses = repeated.length > 0 ? repeated : localNames(mail, parts)
  return addresses.map((address) => ({ address, text: parts.text }))
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

// A name alone on the line below one that ends in a colon, as servers list their own users.
const LOCAL_NAME = /:[ \t]{0,9}\n(?:[ \t]{0,9}\n)?[ \t]{1,40}([\w.+-]{2,64})[ \t]{0,9}$/m

/** A name without domain is a mailbox of the server that writes. */
function localNames(mail: MailPart, { text }: ReportParts): string[] {
  const name = LOCAL_NAME.exec(text)?.[1]
  const domain = addressesIn(mail, ['from'])[0]?.split('@')[1]
  return name === undefined || domain === undefined ? [] : [`${name}@${domain.toLowerCase()}`]
}
