/**
 * Acceptance of a mail that came by SMTP submission: one message for each recipient, all sharing the mail as it came
 * (inbound/README.md "Submission"). The same checks as over HTTP, in the same order. Throws ServiceError.
 */
import { ServiceError } from '../../base/errors.ts'
import { parseAddress } from '../../mail/address.ts'
import type { Mailbox, StoredContent } from '../../mail/message.ts'
import type { IdempotencyEntry, KeptAnswer } from '../../store/records/accept-records.ts'
import type { Store } from '../../store/store.ts'
import { acceptMail, type AcceptanceOptions } from './accept-mail.ts'
import { policyOf } from './accept-message.ts'
import { checkPool, checkTags } from './check-options.ts'
import { readAddress, type CheckedRecipient, type RequestPolicy } from './check-shared-fields.ts'
import { createFieldProblems } from './field-problems.ts'
import { mismatch } from './idempotency.ts'
import { mailFingerprint, partsMadeAnew } from './mail-fingerprint.ts'
import { requireSender, type SenderDomain } from './require-sender.ts'
import type { AcceptSubmission, Caller, SubmissionAnswer, SubmissionRequest } from './send-request.ts'

const STREAM = 'transactional'
const KEY_PREFIX = 'smtp:'
// Printable ASCII, as for the header of HTTP (http/README.md "Idempotency").
const IDEMPOTENCY_KEY = /^[ -~]{1,256}$/
// The field with something in it, also on the next line of a fold.
const MESSAGE_ID = /^message-id:(?:[ \t]|\r\n[ \t])*\S/im
const HEADER_END = '\r\n\r\n'
const MOST_SUBJECT_CHARACTERS = 998

/** SMTP's "done"; nothing but this module reads a kept answer of its own. */
const KEPT_STATUS = 250

export function createAcceptSubmission(options: AcceptanceOptions): AcceptSubmission {
  const { store, clock } = options

  return async (request, caller) => {
    const checked = readSubmission(request, policyOf(options))
    const entry = await entryOf(request, caller.apiKeyId)
    // Before the rate: a repeat takes nothing of it.
    const kept = entry === null ? null : await findKept(store, entry, request, clock.now())
    if (kept !== null) return kept
    await requireSenders(request, caller, options)
    const acceptance = await acceptMail<SubmissionAnswer>(
      {
        mail: {
          domain: checked.domain,
          stream: STREAM,
          sendAt: null,
          lifetime: null,
          ipPool: checked.ipPool,
          recipients: checked.recipients,
          batch: null,
          retryOf: null,
          content: (sender) => contentOf(request, checked, sender),
        },
        caller,
        idempotent: entry === null ? null : { entry, answer: keptAnswer },
        shape: ({ recipients }) => ({
          messageIds: recipients.map(({ messageId }) => messageId),
          suppressed: recipients.filter(({ status }) => status === 'suppressed').map(({ to }) => to),
        }),
      },
      options,
    )
    return acceptance.kind === 'accepted' ? acceptance.accepted : readKept(acceptance.answer.body)
  }
}

/** Receivers show or judge these too: nobody is named there whom the key may not send as. */
async function requireSenders(
  { senders = [] }: SubmissionRequest,
  caller: Caller,
  options: AcceptanceOptions,
): Promise<void> {
  for (const { field, domain } of senders) {
    try {
      await requireSender(domain, caller, options)
    } catch (thrown) {
      if (!(thrown instanceof ServiceError)) throw thrown
      throw new ServiceError(thrown.code, `${field}: ${thrown.details}`)
    }
  }
}

interface CheckedSubmissionRequest {
  from: Mailbox
  domain: string
  recipients: CheckedRecipient[]
  tags: Record<string, string>
  ipPool: string | null
}

function readSubmission(request: SubmissionRequest, policy: RequestPolicy): CheckedSubmissionRequest {
  const problems = createFieldProblems([])
  const recipients = readRecipients(request.recipients, policy)
  const from = readAddress('From', request.from, { allowReservedNames: true }, problems)
  const tags = checkTags(request.tags ?? {}, problems)
  const ipPool = checkPool(request.ipPool, policy.poolNames, problems)
  const { idempotencyKey } = request
  if (idempotencyKey !== undefined && !IDEMPOTENCY_KEY.test(idempotencyKey)) {
    problems.add('X-Idempotency-Key', 'must be 1 to 256 printable ASCII characters')
  }
  const found = problems.fields()
  if (from === undefined || found.length > 0) throw new ServiceError('invalid_request', found.join('; '))
  return { from: from.mailbox, domain: from.domain, recipients, tags, ipPool }
}

function readRecipients(addresses: readonly string[], policy: RequestPolicy): CheckedRecipient[] {
  const parsed = addresses.map((address) => parseAddress(address, policy))
  const problems = parsed.flatMap((each) => (each.ok ? [] : [each.problem]))
  if (problems.length > 0) throw new ServiceError('invalid_recipient', problems.join('; '))
  if (parsed.length === 0) throw new ServiceError('invalid_recipient', 'no recipient')
  return parsed.flatMap((each) => (each.ok ? [{ mailbox: each.mailbox, domain: each.domain, variables: {} }] : []))
}

/** Whether there is html to track is seen when the mail is sent. */
function contentOf(
  { subject, raw, track }: SubmissionRequest,
  { from, tags }: CheckedSubmissionRequest,
  sender: SenderDomain,
): StoredContent {
  return {
    from,
    tags,
    raw,
    replyTo: [],
    html: null,
    text: null,
    attachments: [],
    hasVariables: false,
    addressees: null,
    headers: [],
    metadata: {},
    unsubscribe: null,
    subject: shownSubject(subject),
    tracking: track ?? { opens: sender.tracking.opens, clicks: sender.tracking.clicks },
  }
}

/** For lookup alone: the mail itself has its own. */
function shownSubject(subject: string): string {
  // Every control character, with the spaces around it.
  const line = subject.replace(/[\p{Cc} ]+/gu, ' ').toWellFormed()
  return [...line].slice(0, MOST_SUBJECT_CHARACTERS).join('')
}

/** Under a key of the sender's, a mail that was written anew is the same one; the order of recipients never counts. */
async function entryOf(
  { recipients, raw, idempotencyKey }: SubmissionRequest,
  apiKeyId: string | null,
): Promise<IdempotencyEntry | null> {
  if (idempotencyKey === undefined && !hasMessageId(raw)) return null
  const leftOut = idempotencyKey === undefined ? [] : partsMadeAnew(raw)
  const fingerprint = await mailFingerprint(recipients.toSorted(), raw, leftOut)
  return { apiKeyId, key: keyOf(idempotencyKey, fingerprint), fingerprint }
}

function keyOf(idempotencyKey: string | undefined, fingerprint: Buffer): string {
  return `${KEY_PREFIX}${idempotencyKey ?? fingerprint.toString('hex')}`
}

function hasMessageId(raw: Uint8Array): boolean {
  const bytes = Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength)
  const end = bytes.indexOf(HEADER_END)
  return MESSAGE_ID.test(bytes.toString('latin1', 0, end < 0 ? bytes.length : end))
}

async function findKept(
  store: Pick<Store, 'findIdempotent'>,
  entry: IdempotencyEntry,
  { recipients, raw, idempotencyKey }: SubmissionRequest,
  now: number,
): Promise<SubmissionAnswer | null> {
  let found = await store.findIdempotent(entry, now)
  const hasOrder = recipients.toSorted().some((each, index) => each !== recipients[index])
  if (found.kind === 'mismatch' || (found.kind === 'new' && hasOrder)) {
    // 0.1.0 kept the fingerprint of the whole mail, and of the recipients as they came.
    const fingerprint = await mailFingerprint(recipients, raw, [])
    found = await store.findIdempotent({ ...entry, key: keyOf(idempotencyKey, fingerprint), fingerprint }, now)
  }
  if (found.kind === 'mismatch') throw mismatch()
  return found.kind === 'new' ? null : readKept(found.answer.body)
}

function keptAnswer({ messageIds }: SubmissionAnswer): KeptAnswer {
  return { status: KEPT_STATUS, body: JSON.stringify(messageIds) }
}

function readKept(body: string): SubmissionAnswer {
  const parsed: unknown = JSON.parse(body)
  return { messageIds: Array.isArray(parsed) ? parsed.map(String) : [], suppressed: [] }
}
