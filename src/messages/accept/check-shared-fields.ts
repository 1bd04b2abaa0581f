/**
 * The fields that a send, a preview and a batch have in common, checked once (http/README.md "Sending" and "Batches").
 * Pure and linear in the size of the request; never throws. Without problems the mail is whole.
 */
import { unquotedPlaceholder } from '../../content/html/unquoted-attribute.ts'
import { readTemplates, type ReadTemplates } from '../../content/template/template-problems.ts'
import { parseAddress, type ParsedAddress } from '../../mail/address.ts'
import type { Attachment, Mailbox, StoredContent, Stream, Variables } from '../../mail/message.ts'
import { checkAttachments } from './check-attachments.ts'
import { checkHeaders } from './check-headers.ts'
import { checkOptions, type CheckedOptions } from './check-options.ts'
import { checkText, type FieldProblems } from './field-problems.ts'
import type { SharedFields } from './send-request.ts'

/** Settings and the time: what a request is judged by besides itself. */
export interface RequestPolicy {
  /** Names under `.test` and the like may be written to. */
  allowReservedNames: boolean
  now: number
  poolNames: readonly string[]
  /** Header fields that this server writes under names from its configuration. */
  ownHeaders: readonly string[]
}

/** What is the same for all recipients of a request. */
export interface CheckedMail {
  /** Domain of `from`. */
  domain: string
  content: Omit<StoredContent, 'attachments' | 'tracking' | 'addressees' | 'raw'>
  attachments: Attachment[]
  options: Pick<CheckedOptions, 'stream' | 'sendAt' | 'lifetime' | 'ipPool' | 'track'>
}

export interface CheckedRecipient {
  mailbox: Mailbox
  /** Lower-case A-labels. */
  domain: string
  variables: Variables
}

interface SharedReading {
  /** Undefined where `from` is no address; of use only when there are no problems. */
  mail: CheckedMail | undefined
  templates: ReadTemplates
}

interface SharedReadingOptions {
  hasVariables: boolean
  defaultStream: Stream
  policy: RequestPolicy
}

type AcceptedAddress = Extract<ParsedAddress, { ok: true }>

const MISSING = { ok: false, problem: 'is missing' } as const
/**
 * A placeholder for the address where one leaves the list, and the longest that we make (http/README.md "Unsubscribe").
 */
const UNSUBSCRIBE_VARIABLE = 'unsubscribe_url'
const MOST_UNSUBSCRIBE_URL_CHARACTERS = 320

export function checkSharedFields(
  given: SharedFields,
  { hasVariables, defaultStream, policy }: SharedReadingOptions,
  problems: FieldProblems,
): SharedReading {
  // The domain must be a verified one of ours, so a reserved name is not refused for its own sake.
  const from = readAddress('from', given.from, { allowReservedNames: true }, problems)
  const replyTo = readReplyTo(given.replyTo, policy, problems)
  const { subject, html, text } = readText(given, problems)
  const unquoted = hasVariables && html !== null ? unquotedPlaceholder(html) : undefined
  if (unquoted !== undefined) problems.add('html', unquoted)
  const attachments = checkAttachments(given.attachments, problems)
  const headers = checkHeaders(given.headers ?? {}, policy.ownHeaders, problems)
  const options = checkOptions(given, { ...policy, defaultStream }, problems)
  const { tags, metadata, unsubscribe } = options
  const texts = { subject, html, text, hasVariables }
  const templates = readTemplates(texts, unsubscribe === null ? {} : { [UNSUBSCRIBE_VARIABLE]: sampleUrl(unsubscribe) })
  if (from === undefined) return { mail: undefined, templates }
  const content = {
    from: from.mailbox,
    replyTo,
    subject,
    html,
    text,
    hasVariables,
    headers,
    tags,
    metadata,
    unsubscribe,
  }
  return { mail: { domain: from.domain, content, attachments, options }, templates }
}

/** Those that are addresses; the others are in the list of problems. */
function readReplyTo(
  given: SharedFields['replyTo'],
  policy: Pick<RequestPolicy, 'allowReservedNames'>,
  problems: FieldProblems,
): Mailbox[] {
  const read = (path: string, text: string): Mailbox[] => {
    const address = readAddress(path, text, policy, problems)
    return address === undefined ? [] : [address.mailbox]
  }
  if (typeof given === 'string') return read('reply_to', given)
  return given.flatMap((text, index) => read(`reply_to[${index}]`, text))
}

/** Undefined after a problem, which is then in the list. */
export function readAddress(
  path: string,
  text: string | undefined,
  policy: Pick<RequestPolicy, 'allowReservedNames'>,
  problems: FieldProblems,
): AcceptedAddress | undefined {
  const parsed = text === undefined ? MISSING : parseAddress(text, policy)
  if (parsed.ok) return parsed
  problems.add(path, parsed.problem)
  return undefined
}

function readText(
  { subject, html, text }: SharedFields,
  problems: FieldProblems,
): Pick<StoredContent, 'subject' | 'html' | 'text'> {
  if (subject === undefined) problems.add('subject', 'is missing')
  const hasBody = html !== undefined || text !== undefined
  // A body of the wrong type is there, and named already.
  if (!hasBody && !problems.isNamed('text')) problems.add('html', 'one of html and text is needed')
  checkText('html', html ?? '', problems)
  checkText('text', text ?? '', problems)
  return { subject: subject ?? '', html: html ?? null, text: text ?? null }
}

function sampleUrl({ url }: { url: string | null }): string {
  return 'x'.repeat(Math.max(MOST_UNSUBSCRIBE_URL_CHARACTERS, url?.length ?? 0))
}
