/**
 * A message to render, with a key of its own, and what is true of every rendered message.
 */
import { createSecretKey, generateKeyPairSync } from 'node:crypto'
import { dkimVerify } from 'mailauth'
import PostalMime, { type Email } from 'postal-mime'
import { createSigner } from '../../src/content/mime/dkim.ts'
import type { RenderSettings } from '../../src/content/message-fields.ts'
import { prepareContent } from '../../src/content/prepare-content.ts'
import type { RenderInput } from '../../src/content/render-message.ts'
import type { Attachment, StoredContent } from '../../src/mail/message.ts'

export const MESSAGE_ID = 'msg_01kapg6t3vq8x2m5r7w9y4c6de'
export const KEYS = {
  complaint: createSecretKey(Buffer.alloc(32, 3)),
  open: createSecretKey(Buffer.alloc(32, 4)),
  click: createSecretKey(Buffer.alloc(32, 5)),
  unsubscribe: createSecretKey(Buffer.alloc(32, 6)),
}
export const BASE_URL = 'https://t.acme.com'

const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
const signer = createSigner({
  domain: 'acme.com',
  selector: 's1',
  privateKeyPem: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
})
const record = `v=DKIM1; p=${publicKey.export({ type: 'spki', format: 'der' }).toString('base64')}`

export interface Change {
  content?: Partial<StoredContent>
  facts?: Partial<RenderInput['facts']>
  settings?: Partial<RenderSettings>
}

export function storedContent(change: Partial<StoredContent> = {}): StoredContent {
  return {
    from: { name: 'Acme', address: 'orders@acme.com' },
    replyTo: [],
    subject: 'Order {{no}}',
    html: null,
    text: 'Hi {{name}}',
    attachments: [],
    hasVariables: true,
    addressees: null,
    headers: [],
    tags: {},
    metadata: {},
    tracking: { opens: false, clicks: false },
    unsubscribe: null,
    raw: null,
    ...change,
  }
}

export function input(change: Change = {}): RenderInput {
  return {
    content: prepareContent(storedContent(change.content)),
    facts: {
      messageId: MESSAGE_ID,
      domain: 'acme.com',
      to: { name: null, address: 'ada@example.net' },
      variables: { no: 1042, name: 'Ada' },
      acceptedAt: 1_795_262_400_000,
      sendAt: null,
      stream: 'transactional',
      ...change.facts,
    },
    returnPath: 'bounces.acme.com',
    trackingBaseUrl: BASE_URL,
    settings: {
      keys: KEYS,
      referenceHeader: 'X-Sternpost-Ref',
      senderId: 'sternpost1',
      cfbl: false,
      ...change.settings,
    },
    signers: [signer],
  }
}

export function attachment(fields: Partial<Attachment>): Attachment {
  return { name: 'file.txt', contentType: 'text/plain', contentId: null, bytes: Buffer.from('content'), ...fields }
}

/** What every message keeps to, whatever is in it. */
export function brokenLimits(bytes: Buffer): string[] {
  const text = bytes.toString('latin1')
  const problems: string[] = []
  if (/[\r\n]/.test(text.replaceAll('\r\n', ''))) problems.push('bare CR or LF')
  if (text.includes('\0')) problems.push('NUL')
  if (text.split('\r\n').some((line) => line.length > 998)) problems.push('line above 998')
  const header = text.slice(0, text.indexOf('\r\n\r\n'))
  // A line that is neither a field nor its continuation.
  const isMalformed = (line: string): boolean => !/^(?:[!-9;-~]+:|[ \t]+\S)/.test(line)
  if (header.split('\r\n').some(isMalformed)) problems.push('malformed header line')
  return problems
}

export async function parse(bytes: Buffer): Promise<{ mail: Email; keys: string[] }> {
  const mail = await PostalMime.parse(bytes)
  return { mail, keys: mail.headers.map((header) => header.key) }
}

/** `pass` by mailauth, with the fields that are signed; else the verdict alone. */
export async function dkimVerdict(bytes: Buffer): Promise<{ result: string; fields: string[] }> {
  const resolver = async (): Promise<string[][]> => [[record]]
  const { results } = await dkimVerify(bytes, { resolver })
  const [own] = results.filter(({ signingDomain }) => signingDomain === 'acme.com')
  const fields = own?.signingHeaders?.keys.split(': ').map((name) => name.toLowerCase()) ?? []
  return { result: own?.status.result ?? 'none', fields }
}
