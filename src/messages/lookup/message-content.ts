/**
 * What a stored message looks like as a mail (http/README.md "Lookup"): rendered as delivery does, but for the
 * signature, and without what would count as an open or a click of whoever looks, or let them report or unsubscribe as
 * the recipient. Throws ServiceError `not_found` when the content was removed.
 */
import { randomBytes } from 'node:crypto'
import type { ContentJson } from '../../api/message.ts'
import { renderKeys } from '../../content/message-fields.ts'
import type { PreviewInput } from '../../content/preview-message.ts'
import type { Clock } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { createKeyRing, MASTER_KEY_BYTES } from '../../base/key-ring.ts'
import type { Reach } from '../../mail/reach.ts'
import { withoutTokens } from '../../mail/reply/smtp-reply.ts'
import type { Store } from '../../store/store.ts'
import type { RequestReader } from '../accept/request-reader.ts'
import { requireMessage } from './visible-messages.ts'

interface MessageContentOptions {
  store: Pick<Store, 'lookupMessage' | 'messageContent'>
  clock: Clock
  reader: Pick<RequestReader, 'preview'>
  /** What delivery renders mail of a sending domain with. */
  renderingOf(domain: string): Promise<Omit<PreviewInput, 'content' | 'facts'>>
}

export type MessageContent = ReturnType<typeof createMessageContent>

export function createMessageContent({ store, clock, reader, renderingOf }: MessageContentOptions) {
  // Tokens with these are no tokens, also where a line of the source is folded in the middle of one.
  const keys = renderKeys(createKeyRing(randomBytes(MASTER_KEY_BYTES)))
  return async (named: string, reach: Reach): Promise<ContentJson> => {
    const { id } = await requireMessage(store, named, reach, clock.now())
    const found = await store.messageContent(id)
    if (found === null) throw new ServiceError('not_found', `the content of ${id} was removed`)
    const content = { ...found.content, tracking: { opens: false, clicks: false } }
    const rendering = await renderingOf(found.facts.domain)
    const settings = { ...rendering.settings, keys }
    const preview = await reader.preview({ ...rendering, settings, content, facts: found.facts })
    const { subject, html, text, mimeBytes, headers, source } = preview
    return {
      subject,
      html: html && withoutTokens(html),
      text: text && withoutTokens(text),
      mime_bytes: mimeBytes,
      headers: headers.map(({ name, value }) => ({ name, value: withoutTokens(value) })),
      source: withoutTokens(source),
    }
  }
}
