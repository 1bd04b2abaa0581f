/**
 * What is stored about one address, to be told or to be erased (messages/README.md "Privacy").
 *
 * Addresses count as the same in capitals and small letters: it is one person.
 * ServiceError `invalid_request` for what is no address.
 */
import type { ErasedRecipientJson } from '../../api/server.ts'
import { toUnixSeconds, type Clock } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { parseAddress } from '../../mail/address.ts'
import { EVERYTHING } from '../../mail/reach.ts'
import type { MessageView } from '../../store/records/lookup-records.ts'
import type { Store } from '../../store/store.ts'

export interface RecipientData {
  /** As plain data: message, events and dialogues of each. */
  messages: object[]
  /** Where the next page begins; null: this was the last. */
  next: string | null
  suppressions: object[]
}

const PAGE = 50
/** Nothing but the recipient restricts the search. */
const ANY_MESSAGE = {
  from: null,
  state: null,
  batchId: null,
  subject: null,
  tag: null,
  isp: null,
  ip: null,
  since: null,
  until: null,
}
const ANY_SUPPRESSION = { reason: null, scope: null, since: null, limit: PAGE, after: null }

type RecipientStore = Pick<
  Store,
  'searchMessages' | 'messageEvents' | 'transcripts' | 'listSuppressions' | 'spellingsOf' | 'eraseSomeOfRecipient'
>

/** A page of the messages, newest first; the suppressions stand on the first. */
export async function exportRecipient(
  { store, clock }: { store: RecipientStore; clock: Clock },
  text: string,
  after: string | null,
): Promise<RecipientData> {
  const recipient = readAddress(text)
  const page = await store.searchMessages({
    ...ANY_MESSAGE,
    recipient,
    reach: EVERYTHING,
    limit: PAGE,
    after,
    now: clock.now(),
  })
  return {
    messages: await Promise.all(page.messages.map((view) => wholeMessage(store, view))),
    next: page.next,
    suppressions: after === null ? await suppressionsOf(store, recipient) : [],
  }
}

export async function eraseRecipient(
  { store, clock }: { store: RecipientStore; clock: Clock },
  text: string,
): Promise<ErasedRecipientJson> {
  const total: ErasedRecipientJson = { messages: 0, canceled: 0, sending: 0, others: 0 }
  for (const address of await store.spellingsOf(readAddress(text))) {
    let after: number | null = 0
    while (after !== null) {
      const step = await store.eraseSomeOfRecipient({ address, after, now: clock.now() })
      total.messages += step.messages
      total.canceled += step.canceled
      total.sending += step.sending
      total.others += step.others
      after = step.next
    }
  }
  return total
}

function readAddress(text: string): string {
  const parsed = parseAddress(text, { allowReservedNames: true })
  if (!parsed.ok) throw new ServiceError('invalid_request', `address: ${parsed.problem}`)
  return parsed.mailbox.address
}

async function wholeMessage(store: RecipientStore, view: MessageView): Promise<object> {
  const [events, transcripts] = await Promise.all([store.messageEvents(view.id), store.transcripts(view.id)])
  const { id, state, recipient, from, subject, variables, tags, metadata, domain, ip, isp, bounce } = view
  return {
    message_id: id,
    state,
    to: recipient,
    from,
    subject,
    variables,
    tags,
    metadata,
    domain,
    ip,
    isp,
    bounce,
    accepted_at: toUnixSeconds(view.createdAt),
    opens: view.opens,
    clicks: view.clicks,
    machine_opens: view.machineOpens,
    machine_clicks: view.machineClicks,
    events: (events ?? []).map(({ at, ...event }) => ({ ...event, at: toUnixSeconds(at) })),
    dialogues: (transcripts ?? []).map(({ at, ...transcript }) => ({ ...transcript, at: toUnixSeconds(at) })),
  }
}

async function suppressionsOf(store: RecipientStore, email: string): Promise<object[]> {
  const pages = await Promise.all(
    [false, true].map((isTest) => store.listSuppressions({ ...EVERYTHING, ...ANY_SUPPRESSION, isTest, email })),
  )
  return pages.flatMap(({ suppressions }) =>
    suppressions.map(({ createdAt, isTest, messageId, ...suppression }) => ({
      ...suppression,
      test: isTest,
      message_id: messageId,
      created_at: toUnixSeconds(createdAt),
    })),
  )
}
