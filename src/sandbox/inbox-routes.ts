/**
 * `/dev/inbox`: the captured messages for people and for assertions in tests (sandbox/README.md "Routes under /dev").
 *
 * Parts of a message are served so that they can do nothing in a browser: html under a `sandbox` policy, everything
 * else as plain text or as a download.
 */
import type { Context } from 'koa'
import type { Attachment, Email } from 'postal-mime'
import { toUnixSeconds } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import { mailPolicy } from '../base/mail-policy.ts'
import {
  notFound,
  queryLimit,
  queryText,
  queryWait,
  sendData,
  sendList,
  type DevHandler,
  type DevRoutes,
} from './dev-route.ts'
import { parseMail, type Inbox, type InboxEntry } from './inbox.ts'

const UNKNOWN_TYPE = 'application/octet-stream'

export function inboxRoutes(inbox: Inbox): DevRoutes {
  const entryOf = (parameters: Record<string, string>): InboxEntry => {
    const entry = inbox.get(parameters['id'] ?? '')
    if (entry === undefined) throw notFound(`no captured message ${parameters['id'] ?? ''}`)
    return entry
  }

  const sendText =
    (part: 'html' | 'text', type: string): DevHandler =>
    async (context, parameters) => {
      const content = (await readMail(entryOf(parameters)))[part]
      if (content === undefined) throw notFound(`the message has no ${part} part`)
      sendPart(context, `${type}; charset=utf-8`, content)
    }

  return {
    'GET /dev/inbox': (context) => listEntries(context, inbox),
    'DELETE /dev/inbox': (context) => sendData(context, { deleted: inbox.clear() }),
    'GET /dev/inbox/:id': async (context, parameters) => {
      const entry = entryOf(parameters)
      sendData(context, detailView(entry, await readMail(entry)))
    },
    'GET /dev/inbox/:id/raw': (context, parameters) => sendPart(context, 'message/rfc822', entryOf(parameters).bytes),
    'GET /dev/inbox/:id/html': sendText('html', 'text/html'),
    'GET /dev/inbox/:id/text': sendText('text', 'text/plain'),
    'GET /dev/inbox/:id/attachments/:number': async (context, parameters) => {
      const { attachments } = await readMail(entryOf(parameters))
      const attachment = attachments[Number(parameters['number']) - 1]
      if (attachment === undefined) throw notFound(`the message has ${attachments.length} attachments`)
      sendAttachment(context, attachment)
    },
  }
}

async function listEntries(context: Context, inbox: Inbox): Promise<void> {
  const filter = {
    to: queryText(context, 'to'),
    from: queryText(context, 'from'),
    subject: queryText(context, 'subject'),
    label: queryText(context, 'label'),
    after: queryText(context, 'after'),
  }
  const found = await inbox.find(filter, queryLimit(context), queryWait(context))
  sendList(context, found.map(entryView))
}

async function readMail(entry: InboxEntry): Promise<Email> {
  try {
    return await parseMail(entry.bytes)
  } catch (cause) {
    throw new ServiceError('conflict', 'the message is not readable as MIME; see /raw', { cause })
  }
}

/** Times in Unix seconds; names as in the log. */
function entryView(entry: InboxEntry): Record<string, unknown> {
  const { header, envelope, dkim } = entry
  return {
    id: entry.id,
    from: header.from,
    to: header.to,
    subject: header.subject,
    envelope,
    received_at: toUnixSeconds(entry.receivedAt),
    size: entry.bytes.length,
    message_id: entry.messageId,
    message_id_header: header.messageId,
    dkim,
    remote_address: entry.remoteAddress,
    ehlo_name: entry.ehloName,
  }
}

function detailView(entry: InboxEntry, mail: Email): Record<string, unknown> {
  return {
    ...entryView(entry),
    headers: mail.headers.map(({ originalKey, value }) => ({ name: originalKey, value })),
    text: mail.text ?? null,
    html: mail.html ?? null,
    transcript: entry.transcript,
    attachments: mail.attachments.map((attachment, index) => ({
      n: index + 1,
      name: attachment.filename,
      content_type: attachment.mimeType,
      content_id: attachment.contentId ?? null,
      size: contentOf(attachment).length,
      url: `/dev/inbox/${entry.id}/attachments/${index + 1}`,
    })),
  }
}

function sendAttachment(context: Context, attachment: Attachment): void {
  // A media type of RFC 6838 §4.2; whatever else the message says is not repeated in a header.
  const isPlainType = /^[a-z0-9][\w!#$&^.+-]{0,126}\/[a-z0-9][\w!#$&^.+-]{0,126}$/i.test(attachment.mimeType)
  context.attachment(attachment.filename ?? 'attachment')
  sendPart(context, isPlainType ? attachment.mimeType : UNKNOWN_TYPE, contentOf(attachment))
}

function contentOf({ content }: Attachment): Buffer {
  if (typeof content === 'string') return Buffer.from(content)
  if (content instanceof ArrayBuffer) return Buffer.from(content)
  return Buffer.from(content.buffer, content.byteOffset, content.byteLength)
}

function sendPart(context: Context, contentType: string, body: string | Buffer): void {
  const hasImages = queryText(context, 'images') === 'remote'
  context.set('Content-Security-Policy', mailPolicy(hasImages))
  context.set('X-Content-Type-Options', 'nosniff')
  context.status = 200
  context.set('Content-Type', contentType)
  context.body = body
}
