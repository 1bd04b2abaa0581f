/**
 * What a request would look like as a mail, for `POST /email/preview` (http/README.md "Preview"): the same steps as at
 * delivery but for the signature. Rejects as rendering does.
 */
import { fieldBody, fieldName, splitFields } from '../mail/header-fields.ts'
import type { StoredContent } from '../mail/message.ts'
import { runTokenizer } from './html/run-tokenizer.ts'
import { messageUrls } from './message-fields.ts'
import { textOf } from './mime/body-text.ts'
import { linksOf, prepareContent } from './prepare-content.ts'
import { composeUnsigned, type ComposeInput } from './render-message.ts'

export type PreviewInput = Omit<ComposeInput, 'content'> & { content: StoredContent }

export interface MessagePreview {
  subject: string
  html: string | null
  text: string | null
  /** Without the signature, which delivery adds. */
  mimeBytes: number
  /** The mail as UTF-8, as far as it is shown. */
  source: string
  /** As they are sent, folds taken out, in their order. */
  headers: { name: string; value: string }[]
  /** Where the rewritten links lead. */
  links: string[]
  /** Characters of text in the html when the pixel for opens is its only image; null: it is not. */
  textBesidePixel: number | null
}

/** Attachments are cut off there. */
const MOST_SOURCE_BYTES = 256 * 1_024

export async function previewMessage(input: PreviewInput): Promise<MessagePreview> {
  const content = prepareContent(input.content)
  const { bodies, bytes } = await composeUnsigned({ ...input, content })
  const { facts, trackingBaseUrl: baseUrl, settings } = input
  const urls = messageUrls({ messageId: facts.messageId, baseUrl, keys: settings.keys })
  const html = bodies?.html ? textOf(bodies.html) : null
  const header = bytes.subarray(0, bytes.indexOf('\r\n\r\n') + 2).toString('utf8')
  return {
    subject: bodies?.subject ?? input.content.subject,
    html,
    text: bodies?.text ? textOf(bodies.text) : null,
    mimeBytes: bytes.length,
    source: bytes.subarray(0, MOST_SOURCE_BYTES).toString('utf8'),
    headers: splitFields(header).map((field) => ({
      name: field.slice(0, fieldName(field).length),
      value: fieldBody(field),
    })),
    links: linksOf(content, facts.variables, urls),
    textBesidePixel: html !== null && input.content.tracking.opens ? textBesideOneImage(html) : null,
  }
}

/** Their texts are shown to nobody. */
const NOT_SHOWN = new Set(['style', 'script', 'title'])

function textBesideOneImage(html: string): number | null {
  let images = 0
  let characters = 0
  let isShown = true
  runTokenizer(html, {
    onopentagname(start, end) {
      const name = html.slice(start, end).toLowerCase()
      images += Number(name === 'img')
      isShown = !NOT_SHOWN.has(name)
    },
    // They end with the first end tag.
    onclosetag() {
      isShown = true
    },
    ontext: (start, end) => void (characters += isShown ? end - start : 0),
  })
  return images === 1 ? characters : null
}
