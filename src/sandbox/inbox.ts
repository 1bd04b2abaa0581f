/**
 * The captured messages, newest first, in memory alone: at most `keep` of them and 256 MiB, the oldest go first. A
 * message that is no MIME is kept all the same, with empty header facts. Never throws for its content.
 */
import { randomUUID, type KeyObject } from 'node:crypto'
import PostalMime, { type Address, type Email } from 'postal-mime'
import type { Logger } from '../base/logger.ts'
import type { CapturedMail } from '../capture/capture-server.ts'
import { createEntryWatch } from './entry-watch.ts'
import { labelOf } from '../capture/simulated-recipients.ts'
import { readReturnPathToken } from '../mail/message-token.ts'

/** What a check of the message's DKIM signature said; `none` when there is none. */
export interface DkimVerdict {
  result: string
  domain: string | null
  selector: string | null
}

export interface InboxEntry extends CapturedMail {
  id: string
  header: HeaderFacts
  dkim: DkimVerdict
  /** The message of ours that it is; null: none of ours. */
  messageId: string | null
}

/** From the header of the message; addresses without display names. */
interface HeaderFacts {
  from: string | null
  to: string[]
  subject: string
  messageId: string | null
}

/** null: any. Addresses and subject are compared without regard to case. */
interface InboxFilter {
  /** An address of the envelope or the header, whole. */
  to: string | null
  from: string | null
  /** A part of the subject. */
  subject: string | null
  /** The `+label` of a recipient. */
  label: string | null
  /** Only what arrived behind the message with this id; one that is gone counts as none. */
  after: string | null
}

export type Inbox = ReturnType<typeof createInbox>

interface InboxOptions {
  /** Captured messages kept. */
  keep: number
  verifyDkim: (bytes: Buffer) => Promise<DkimVerdict>
  bounceKey: () => Promise<KeyObject>
  logger: Logger
}

const MOST_BYTES = 256 * 1024 * 1024
const NO_HEADER: HeaderFacts = { from: null, to: [], subject: '', messageId: null }

export function createInbox({ keep, verifyDkim, bounceKey, logger }: InboxOptions) {
  const watch = createEntryWatch()
  /** Oldest first. */
  let entries: InboxEntry[] = []
  let bytesHeld = 0

  const dropOldest = (): void => {
    while (entries.length > 1 && (entries.length > keep || bytesHeld > MOST_BYTES)) {
      bytesHeld -= entries.shift()?.bytes.length ?? 0
    }
  }
  const headerOf = async (bytes: Buffer): Promise<HeaderFacts> => {
    try {
      // The rest is read when somebody looks at it: it may be long.
      return headerFacts(await parseMail(bytes.subarray(0, headerLength(bytes))))
    } catch (thrown) {
      logger.warn({ err: thrown }, 'captured mail is not readable')
      return NO_HEADER
    }
  }
  const dkimOf = async (bytes: Buffer): Promise<DkimVerdict> => {
    try {
      return await verifyDkim(bytes)
    } catch (thrown) {
      logger.warn({ err: thrown }, 'dkim check of captured mail failed')
      return { result: 'temperror', domain: null, selector: null }
    }
  }

  return {
    async receive(mail: CapturedMail): Promise<void> {
      const [header, dkim] = await Promise.all([headerOf(mail.bytes), dkimOf(mail.bytes)])
      const messageId = messageOf(mail.envelope.from, await bounceKey())
      entries.push({ ...mail, id: randomUUID(), header, dkim, messageId })
      bytesHeld += mail.bytes.length
      dropOldest()
      watch.changed()
    },
    /** Newest first; with a wait it answers as soon as one matches. */
    find(filter: InboxFilter, limit: number, waitMilliseconds: number): Promise<InboxEntry[]> {
      const look = (): InboxEntry[] =>
        entries
          .slice(entries.findIndex(({ id }) => id === filter.after) + 1)
          .filter((entry) => matches(entry, filter))
          .toReversed()
          .slice(0, limit)
      return watch.wait(look, waitMilliseconds)
    },
    get: (id: string): InboxEntry | undefined => entries.find((entry) => entry.id === id),
    /** Returns how many there were. */
    clear(): number {
      const count = entries.length
      entries = []
      bytesHeld = 0
      return count
    },
    /** Ends all waiting. */
    close: watch.close,
  }
}

/** By the token of its envelope sender. */
function messageOf(envelopeSender: string, bounceKey: KeyObject): string | null {
  const [, token = ''] = /^b-([^@]+)@/i.exec(envelopeSender) ?? []
  return readReturnPathToken(token, bounceKey) ?? null
}

/** Rejects for bytes that are nested too deeply or have too much header. */
export function parseMail(bytes: Buffer): Promise<Email> {
  return PostalMime.parse(bytes, { forceRfc822Attachments: true, attachmentEncoding: 'arraybuffer' })
}

/** With the empty line. */
function headerLength(bytes: Buffer): number {
  const end = bytes.indexOf('\r\n\r\n')
  return end < 0 ? bytes.length : end + 4
}

function headerFacts(mail: Email): HeaderFacts {
  return {
    from: mailboxesOf(mail.from === undefined ? [] : [mail.from])[0] ?? null,
    to: mailboxesOf(mail.to ?? []),
    subject: mail.subject ?? '',
    messageId: mail.messageId ?? null,
  }
}

/** Groups count as their members. */
function mailboxesOf(addresses: Address[]): string[] {
  return addresses.flatMap((address) =>
    address.group === undefined ? [address.address] : address.group.map((member) => member.address),
  )
}

function matches({ envelope, header }: InboxEntry, filter: InboxFilter): boolean {
  const { to, from, subject, label } = filter
  return (
    (to === null || holds([...envelope.to, ...header.to], to)) &&
    (from === null || holds([envelope.from, header.from ?? ''], from)) &&
    (subject === null || header.subject.toLowerCase().includes(subject.toLowerCase())) &&
    (label === null || envelope.to.some((recipient) => labelOf(recipient) === label))
  )
}

function holds(addresses: string[], wanted: string): boolean {
  return addresses.some((address) => address.toLowerCase() === wanted.toLowerCase())
}
