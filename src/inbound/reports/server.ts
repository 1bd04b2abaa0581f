/**
 * The listener for mail that comes back (inbound/README.md "Reports"; test/README.md "Attacks", A19 to A21). 250 comes
 * after the commit of what the mail meant; while the store does not answer, the sender is asked to come again, with
 * 451. RFC 5321.
 */
import type { Port } from '../../base/service/open-port.ts'
import { readReport } from '../../mail/report/read-report.ts'
import type { ReportReading } from '../../mail/report/report-reading.ts'
import { createMessageReceiver } from '../receive-message.ts'
import { createSmtpDoor, type DoorParts, type SmtpDoor, type SmtpLimits } from '../smtp-door.ts'
import { smtpRefusal } from '../smtp-refusal.ts'
import { createFindInboundRecipient, type RecipientParts } from './inbound-recipient.ts'
import { createRouteReport, type RouteParts } from './route-report.ts'

export interface ReportServerOptions extends DoorParts, RecipientParts, RouteParts {
  settings: DoorParts['settings'] &
    RecipientParts['settings'] &
    RouteParts['settings'] & { inbound: { limits: SmtpLimits & { kept: number } } }
  store: RecipientParts['store'] & RouteParts['store']
  logger: RouteParts['logger']
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
  const findRecipient = createFindInboundRecipient(options)
  const route = createRouteReport(options)
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
  return { ...door, start: (listeners) => door.start(listeners.map((port) => ({ ...port, tls: 'starttls' }))) }
}
