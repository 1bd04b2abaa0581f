/**
 * The listener for mail that comes back (inbound/README.md "Reports"; test/README.md "Attacks", A19 to A21). 250 comes
 * after the commit of what the mail meant; while the store does not answer, the sender is asked to come again, with
 * 451. RFC 5321.
 */
import type { Port } from '../../base/service/open-port.ts'
import { domainToAscii } from '../../mail/address.ts'
import { readComplaintToken, readReturnPathToken } from '../../mail/message-token.ts'
import { readReport } from '../../mail/report/read-report.ts'
import type { ReportReading } from '../../mail/report/report-reading.ts'
import type { Store } from '../../store/store.ts'
import { createMessageReceiver } from '../receive-message.ts'
import { createSmtpDoor, type DoorParts, type SmtpDoor, type SmtpLimits } from '../smtp-door.ts'
import { smtpRefusal } from '../smtp-refusal.ts'
import { createAuthenticationThread } from './authentication-thread.ts'
import { createRouteReport, type RouteParts, type InboundRecipient } from './route-report.ts'

export interface ReportServerOptions extends DoorParts, RouteParts {
  settings: DoorParts['settings'] &
    RouteParts['settings'] & {
      inbound: { complaint_address: string; limits: SmtpLimits & { kept: number } }
      domains: { targets: { return_path: string }; dmarc_report_address: string }
    }
  store: RouteParts['store'] & Pick<Store, 'isReturnPath'>
  /** Whether a token for unsubscribing is genuine: asked at RCPT. */
  isUnsubscribeToken(token: string): boolean
}

export interface ReportServer extends Omit<SmtpDoor, 'start'> {
  /** The bound ports, in the order of `listeners`. */
  start(listeners: readonly Port[]): Promise<number[]>
}

/** Of all connections; of each mail the first part is kept. */
const MEMORY_BYTES = 128 * 1024 * 1024
const NO_RECIPIENT = { code: 550, text: '5.1.1 there is no such recipient here' }

export function createReportServer(options: ReportServerOptions): ReportServer {
  const { limits } = options.settings.inbound
  const findRecipient = createFindRecipient(options)
  const thread = createAuthenticationThread(options)
  const route = createRouteReport(options, thread)
  const door = createSmtpDoor({
    ...options,
    setting: 'listen.inbound',
    limits,
    badRecipient: NO_RECIPIENT,
    receive: createMessageReceiver({ keptBytes: limits.kept, memoryBytes: MEMORY_BYTES }),
    logIn: null,
    async onRecipient(address) {
      if ((await findRecipient(address)) === null) throw smtpRefusal(NO_RECIPIENT.code, NO_RECIPIENT.text)
    },
    async onMessage({ bytes, sizeBytes }, { envelope, remoteAddress }) {
      const sender = envelope.mailFrom === false ? '' : envelope.mailFrom.address
      let read: ReportReading | undefined
      const mail = { sender, remoteAddress, bytes, sizeBytes, reading: () => (read ??= readReport(bytes, sender)) }
      // One after the other: what one of them fails on comes again with the whole mail, and changes nothing twice.
      for (const { address } of envelope.rcptTo) {
        const recipient = await findRecipient(address)
        if (recipient !== null) await route({ ...mail, recipient: address }, recipient)
      }
      return '2.0.0 taken'
    },
  })
  return {
    ...door,
    start: (listeners) => door.start(listeners.map((port) => ({ ...port, tls: 'starttls' }))),
    async stop() {
      await door.stop()
      await thread.stop()
    },
  }
}

/** RFC 5321 §4.5.1, RFC 2142 §4. */
const OPERATOR_NAMES = ['postmaster', 'abuse']
const OPERATOR: InboundRecipient = { kind: 'operator' }

/**
 * What an address means here: one of our tokens under a host name of ours, an address that reports come to, or the
 * operator. Everything else is nobody (test/README.md "Attacks", A19). A token is judged before any lookup, so guesses
 * cost a MAC. Rejects when the store does not answer.
 */
function createFindRecipient(parts: ReportServerOptions): (address: string) => Promise<InboundRecipient | null> {
  const { keyRing, store } = parts
  const { hostname, inbound, domains } = parts.settings
  const complaints = inbound.complaint_address.toLowerCase()
  const authentication = domains.dmarc_report_address.toLowerCase()
  const ownNames = [hostname, domains.targets.return_path].map((name) => name.toLowerCase())

  const named = (messageId: string | undefined): InboundRecipient | null =>
    messageId === undefined ? null : { kind: 'token', messageId }
  function readToken(localPart: string): InboundRecipient | null {
    const token = localPart.slice(2)
    switch (localPart.slice(0, 2)) {
      case 'b-':
        return named(readReturnPathToken(token, keyRing.key('bounce')))
      case 'f-':
        return named(readComplaintToken(token, keyRing.key('complaint')))
      case 'u-':
        return parts.isUnsubscribeToken(token) ? { kind: 'unsubscribe', token } : null
      default:
        return null
    }
  }

  return async (address) => {
    // RFC 5321 §4.1.1.3: without a domain it is the postmaster of this host.
    const [localPart = '', given = hostname, ...more] = address.toLowerCase().split('@')
    const domain = domainToAscii(given)
    if (domain === undefined || more.length > 0) return null
    const asked = `${localPart}@${domain}`
    // Where both are the same address, a mail that is no report of DMARC or TLS is read as the others are.
    if (asked === authentication) return { kind: 'authentication' }
    if (asked === complaints) return { kind: 'reports' }
    const recipient = OPERATOR_NAMES.includes(localPart) ? OPERATOR : readToken(localPart)
    if (recipient === null) return null
    return ownNames.includes(domain) || (await store.isReturnPath(domain)) ? recipient : null
  }
}
