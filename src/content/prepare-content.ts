/**
 * A content made ready once for all its messages: templates parsed, html instrumented, a submitted mail taken apart.
 * `bodiesOf` and `submittedMailOf` then only join pieces for one message. The same content and facts give the same
 * result. Content and variables were checked at acceptance (template-problems.ts), so a throw is a fault.
 */
import { isAscii } from 'node:buffer'
import type { StoredContent, Variables } from '../mail/message.ts'
import { fillBody, withFixedLines, type BodyTemplate } from './html/body-template.ts'
import {
  fillHtml,
  fillHtmlBody,
  instrumentHtml,
  trackedTargets,
  UNSUBSCRIBE_KEY,
  withFixedHtml,
  type FillOptions,
  type HtmlTemplate,
} from './html/instrument-html.ts'
import { plainTextOf } from './html/plain-text.ts'
import { namesNonAscii, type MessageUrls } from './message-fields.ts'
import { textOf, type BodyText } from './mime/body-text.ts'
import { createMimeTrees, type MimeTreeOf } from './mime/mime-tree.ts'
import { shortenLines, withMimeVersion } from './mime/encode-anew.ts'
import { findSubmittedHtml, readSubmittedMail, type SubmittedMail } from './mime/submitted-mail.ts'
import type { Template } from './template/parse-template.ts'
import { substitute } from './template/substitute-variables.ts'
import { templateOf } from './template/template-problems.ts'

export interface PreparedContent {
  stored: StoredContent
  /** Its header names an address that only hosts with SMTPUTF8 take. */
  needsUtf8: boolean
  /** It has bytes beyond US-ASCII in its body as it stands. */
  is8Bit: boolean
  /** The html of the content, or that of the submitted mail; null where there is none or nothing of it is tracked. */
  tracked: HtmlTemplate | null
  subject: Template
  html: BodyTemplate | null
  text: BodyTemplate | null
  /** Its MIME tree; of a submitted mail it is not asked for. */
  treeOf: MimeTreeOf
  /** Where neither given nor different from message to message. */
  generatedText: BodyTemplate | null
  /** The mail with this html in place of its own, or without tracking; null: the message is composed. */
  submitted: ((html: string | null) => SubmittedMail) | null
}

export type MessageBodies = ReturnType<typeof bodiesOf>

/** `isShared`: more than one message is made of it. */
export function prepareContent(stored: StoredContent, isShared = false): PreparedContent {
  const { subject, html, text, hasVariables, raw } = stored
  const isTracked = stored.tracking.opens || stored.tracking.clicks
  const submitted = raw === null ? null : prepareSubmitted(raw, isTracked)
  const trackedHtml = raw === null ? html : (submitted?.html ?? null)
  const tracked = isTracked && trackedHtml !== null ? instrumentHtml(trackedHtml, hasVariables) : null
  const isFixed = isShared && raw === null
  const fixed = (template: BodyTemplate | null): BodyTemplate | null =>
    isFixed && template !== null ? withFixedLines(template) : template
  const htmlTemplate = html === null ? null : templateOf(html, 'html', hasVariables)
  const isGenerated = html !== null && text === null && !hasVariables
  return {
    stored,
    needsUtf8: raw === null && namesNonAscii(stored),
    is8Bit: raw !== null && !isAscii(raw),
    tracked: isFixed && tracked !== null ? withFixedHtml(tracked) : tracked,
    subject: templateOf(subject, 'text', hasVariables),
    // Beside what is tracked it is only read.
    html: tracked === null ? fixed(htmlTemplate) : htmlTemplate,
    text: fixed(text === null ? null : templateOf(text, 'text', hasVariables)),
    treeOf: createMimeTrees(stored.attachments, isShared),
    generatedText: fixed(isGenerated ? [plainTextOf(html)] : null),
    submitted: submitted?.mail ?? null,
  }
}

/** The html in which links are counted, wherever it stands; null: there is none. */
export function trackedHtmlOf({ raw, html }: Pick<StoredContent, 'raw' | 'html'>): string | null {
  return raw === null ? html : (findSubmittedHtml(raw)?.html ?? null)
}

/** Of a composed message: everything filled in. The text part keeps the links as they were given. */
export function bodiesOf(prepared: PreparedContent, given: Variables, urls: MessageUrls) {
  const variables = withUnsubscribeUrl(prepared, given, urls)
  const fill = (template: BodyTemplate | null): BodyText | null => template && fillBody(template, variables)
  const plainHtml = prepared.tracked === null || prepared.text === null ? fill(prepared.html) : null
  return {
    subject: substitute(prepared.subject, variables),
    html: prepared.tracked ? fillHtmlBody(prepared.tracked, fillOptions(prepared.stored, variables, urls)) : plainHtml,
    text: fill(prepared.text) ?? fill(prepared.generatedText) ?? (plainHtml && [plainTextOf(textOf(plainHtml))]),
  }
}

/** Where the rewritten links of a message lead. */
export function linksOf({ tracked, stored }: PreparedContent, variables: Variables, urls: MessageUrls): string[] {
  return tracked === null ? [] : trackedTargets(tracked, fillOptions(stored, variables, urls))
}

/** A submitted mail as it came, but for links, pixel and lines that are too long; null: the message is composed. */
export function submittedMailOf(
  { submitted, tracked, stored }: PreparedContent,
  urls: MessageUrls,
): SubmittedMail | null {
  return submitted && submitted(tracked && fillHtml(tracked, fillOptions(stored, {}, urls)))
}

function fillOptions(stored: StoredContent, variables: Variables, urls: MessageUrls): FillOptions {
  return {
    variables,
    linkUrl: urls.link,
    rewritesLinks: stored.tracking.clicks,
    pixelUrl: stored.tracking.opens ? urls.pixel() : null,
    unsubscribeUrl: unsubscribeUrlOf(stored, urls),
  }
}

function unsubscribeUrlOf({ unsubscribe }: StoredContent, urls: MessageUrls): string | null {
  return unsubscribe === null ? null : (unsubscribe.url ?? urls.unsubscribe())
}

function prepareSubmitted(raw: Uint8Array, isTracked: boolean) {
  const withoutTracking = shortenLines(readSubmittedMail(raw))
  const found = isTracked ? findSubmittedHtml(raw) : undefined
  const mail = (html: string | null): SubmittedMail =>
    html === null || found === undefined ? withoutTracking : shortenLines(withMimeVersion(found.replace(html)))
  return { html: found?.html ?? null, mail }
}

/** A recipient's own value of that name wins (http/README.md "Unsubscribe"). */
function withUnsubscribeUrl({ stored }: PreparedContent, given: Variables, urls: MessageUrls): Variables {
  const isWanted = stored.hasVariables && !Object.hasOwn(given, UNSUBSCRIBE_KEY)
  const url = isWanted ? unsubscribeUrlOf(stored, urls) : null
  return url === null ? given : { ...given, [UNSUBSCRIBE_KEY]: url }
}
