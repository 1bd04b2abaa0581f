/**
 * Both SMTP doors over the real parts: a SQLite store, a verified domain, keys, acceptance. Only the clock is moved by
 * hand.
 */
import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { DAY, MINUTE } from '../../src/base/clock.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import { createLogger } from '../../src/base/logger.ts'
import type { CertificateFiles } from '../../src/base/service/server-certificates.ts'
import { createClassifier } from '../../src/mail/reply/classify-reply.ts'
import { createReportServer, type ReportServer, type ReportServerOptions } from '../../src/inbound/reports/server.ts'
import type { SmtpDoor, SmtpListener } from '../../src/inbound/smtp-door.ts'
import { createSubmissionServer, type SubmissionServerOptions } from '../../src/inbound/submission/server.ts'
import { complaintToken, returnPathAddress, returnPathToken } from '../../src/mail/message-token.ts'
import { createAcceptSubmission } from '../../src/messages/accept/accept-submission.ts'
import { createUnsubscribing } from '../../src/messages/engagement/unsubscribe.ts'
import { createApiKeys, type CreateKeyRequest } from '../../src/senders/api-key.ts'
import type { MessageView } from '../../src/store/records/lookup-records.ts'
import { MAIL_CERTIFICATE, MAIL_KEY, OTHER_CERTIFICATE, OTHER_KEY } from '../http/certificates.ts'
import { acceptanceParts, type AcceptanceParts, type AcceptanceSetup } from '../messages/acceptance-parts.ts'
import { HOSTNAME, TARGETS } from '../senders/sender-parts.ts'
import { acceptOne, attempt, delivered, outcomeRecord, POOL, sampleContent } from '../store/store-samples.ts'
import { claimMessages } from '../support/claim-messages.ts'

export const RETURN_PATH = 'bounces.acme.com'
const MIB = 2 ** 20

export interface InboundParts extends AcceptanceParts {
  /** A new key that may send. */
  key(changes?: Partial<CreateKeyRequest>): Promise<string>
  certificates: { mail: CertificateFiles; other: CertificateFiles }
  submission(
    listeners: SmtpListener['tls'][],
    changes?: { settings?: object } & Partial<Omit<SubmissionServerOptions, 'settings'>>,
  ): Promise<{ door: SmtpDoor; ports: number[] }>
  reports(
    changes?: { settings?: object } & Partial<Omit<ReportServerOptions, 'settings'>>,
  ): Promise<{ door: ReportServer; port: number }>
  /** A message that was delivered, with an isp and its tokens. */
  deliveredMessage(to?: string): Promise<Tokens>
  /** A message that is just being delivered; `finish` records that it was. */
  sendingMessage(to: string): Promise<Tokens & { finish(): Promise<void> }>
  look(messageId: string): Promise<MessageView>
  /** Kinds of its timeline. */
  eventKinds(messageId: string): Promise<string[]>
}

export interface Tokens {
  messageId: string
  bounceAddress: string
  complaintAddress: string
  bounceToken: string
  complaintToken: string
}

export async function inboundParts(t: Test, setup: AcceptanceSetup = {}): Promise<InboundParts> {
  const parts = await acceptanceParts(t, setup)
  const { store, clock, keyRing, metrics, log } = parts
  const logger = createLogger({ level: 'debug', write: (line) => log.push(line) })
  const apiKeys = createApiKeys({ store, clock, logger, mostKeys: null })
  const acceptSubmission = createAcceptSubmission(parts.options)
  const certificates = writeCertificates(t.testdir({}))
  const tls = { certificates: [certificates.mail, certificates.other], min_version: 'TLSv1.2' as const }
  const { epoch } = await store.beginEpoch(clock.now(), clock.now())

  /** Claims what else waits, too. */
  const sendingMessage: InboundParts['sendingMessage'] = async (to) => {
    const now = clock.now()
    const id = newIdentifier('msg', now)
    const content = { ...sampleContent, unsubscribe: { list: 'news', url: null } }
    await acceptOne(
      store,
      { now, content },
      { id, to: { name: null, address: to }, recipientDomain: to.slice(to.indexOf('@') + 1), expiresAt: now + DAY },
    )
    const claimed = await claimMessages(store, { now, epoch, leaseUntil: now + MINUTE, pools: [POOL], limit: 1_000 })
    const outcomes = claimed.map((message) => outcomeRecord(message, delivered, attempt({ at: now })))
    return { ...tokensOf(id, keyRing), finish: () => store.recordOutcomes({ epoch, now, outcomes }) }
  }

  return {
    ...parts,
    certificates,
    async key(changes = {}) {
      const { key } = await apiKeys.create({
        name: 'app',
        mode: 'live',
        scopes: ['send'],
        domains: [],
        allowedIps: [],
        expiresAt: null,
        ...changes,
      })
      return key
    },
    async submission(listeners, { settings = {}, ...changes } = {}) {
      const door = createSubmissionServer({
        apiKeys,
        mailRefusal: async () => null,
        acceptSubmission,
        clock,
        logger,
        metrics,
        settings: {
          hostname: HOSTNAME,
          tls,
          delivery: { allow_private_addresses: false },
          submission: {
            limits: { message: 40 * MIB, recipients: 100, connections: 2_000, connections_per_address: 20 },
            auth_failures: { count: 5, per_milliseconds: MINUTE },
          },
          ...settings,
        },
        ...changes,
      })
      const ports = await door.start(listeners.map((kind) => ({ address: '127.0.0.1', port: 0, tls: kind })))
      t.teardown(() => door.stop())
      return { door, ports }
    },
    async reports({ settings = {}, ...changes } = {}) {
      const unsubscribing = createUnsubscribing({
        store,
        clock,
        logger,
        metrics,
        key: keyRing.key('unsubscribe'),
        onEvents: () => {},
      })
      const door = createReportServer({
        store,
        keyRing,
        clock,
        logger,
        metrics,
        acceptSubmission,
        ...unsubscribing,
        recipients: () => 'full',
        providers: { providers: {} },
        classify: createClassifier([]),
        settings: {
          hostname: HOSTNAME,
          tls,
          operator: { email: null },
          headers: { reference: 'X-Sternpost-Ref' },
          inbound: {
            limits: { message: 50 * MIB, kept: MIB, recipients: 100, connections: 2_000, connections_per_address: 20 },
            token_max_age: 35 * DAY,
            complaint_address: `fbl@${HOSTNAME}`,
          },
          domains: { targets: TARGETS, dmarc_report_address: `dmarc@${HOSTNAME}` },
          ...settings,
        },
        onEvents: () => void (parts.told.events += 1),
        ...changes,
      })
      const [port = 0] = await door.start([{ address: '127.0.0.1', port: 0 }])
      t.teardown(() => door.stop())
      return { door, port }
    },
    async deliveredMessage(to = 'ada@example.com') {
      const { finish, ...tokens } = await sendingMessage(to)
      await finish()
      return tokens
    },
    sendingMessage,
    async look(messageId) {
      const view = await store.lookupMessage(messageId, clock.now())
      if (view === null) throw new Error(`no message ${messageId}`)
      return view
    },
    async eventKinds(messageId) {
      return ((await store.messageEvents(messageId)) ?? []).map(({ kind }) => kind)
    },
  }
}

export function tokensOf(messageId: string, keyRing: AcceptanceParts['keyRing']): Tokens {
  const complaint = complaintToken(messageId, keyRing.key('complaint'))
  return {
    messageId,
    bounceAddress: returnPathAddress(messageId, RETURN_PATH, keyRing.key('bounce')),
    complaintAddress: `f-${complaint}@${RETURN_PATH}`,
    bounceToken: returnPathToken(messageId, keyRing.key('bounce')),
    complaintToken: complaint,
  }
}

function writeCertificates(folder: string): InboundParts['certificates'] {
  const write = (name: string, cert: string, key: string): CertificateFiles => {
    const files = { cert_file: join(folder, `${name}.pem`), key_file: join(folder, `${name}.key`) }
    writeFileSync(files.cert_file, cert.trimStart())
    writeFileSync(files.key_file, key.trimStart())
    chmodSync(files.key_file, 0o600)
    return files
  }
  return { mail: write('mail', MAIL_CERTIFICATE, MAIL_KEY), other: write('other', OTHER_CERTIFICATE, OTHER_KEY) }
}
