/**
 * The header section of an accepted mail as a receiver splits it: line by line, folds joined.
 */
import { createSecretKey } from 'node:crypto'
import { prepareContent } from '../../src/content/prepare-content.ts'
import { composeUnsigned, type ComposeInput } from '../../src/content/render-message.ts'
import type { AcceptRequest } from '../../src/store/records/accept-records.ts'

const KEY = createSecretKey(Buffer.alloc(32, 3))

export const RENDERING: Omit<ComposeInput, 'content' | 'facts'> = {
  returnPath: 'bounces.acme.com',
  trackingBaseUrl: 'https://t.acme.com',
  settings: {
    keys: { complaint: KEY, open: KEY, click: KEY, unsubscribe: KEY },
    referenceHeader: 'X-Sternpost-Ref',
    senderId: 'sternpost1',
    cfbl: false,
  },
}

export async function renderedHeaders(request: AcceptRequest): Promise<{ names: string[] }> {
  const [message] = request.messages
  if (message === undefined) throw new Error('no message')
  const { bytes } = await composeUnsigned({
    ...RENDERING,
    content: prepareContent(request.content),
    facts: {
      messageId: message.id,
      domain: request.domain,
      to: message.to,
      variables: message.variables,
      acceptedAt: request.now,
      sendAt: request.sendAt,
      stream: request.stream,
    },
  })
  const text = bytes.toString('utf8')
  // Any line end that a lenient reader might see.
  const lines = text.slice(0, text.indexOf('\r\n\r\n')).split(/\r\n|\r|\n/)
  // Lines that begin with white space go on with the field before.
  const names = lines.filter((line) => !/^[ \t]/.test(line)).map((line) => line.split(':')[0]?.toLowerCase() ?? '')
  return { names }
}
