/**
 * The simulated recipients at work (capture/README.md "Simulated recipients"): what the capture server answers for one,
 * and what follows its delivery. What follows is planned with what it needs alone, so no message is held meanwhile. In
 * memory and bounded. Never throws.
 */
import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import SMTPConnection from 'nodemailer/lib/smtp-connection'
import { SECOND, type Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { findSubmittedHtml } from '../content/mime/submitted-mail.ts'
import { bounceReport, complaintReport, type Report, type ReportedMail } from './simulated-reports.ts'
import { behaviourOf, REPORT_DELAY, VISIT_DELAY, type SimulatedBehaviour } from './simulated-recipients.ts'
import type { Visit } from './visit.ts'

export interface InboundPlace {
  address: string
  port: number
}

export interface SimulationOptions {
  /** The name of the reporting server. */
  hostName: string
  clock: Clock
  logger: Logger
  /** Where reports go; null: there is no inbound server. */
  inboundAddress: () => InboundPlace | null | Promise<InboundPlace | null>
  /** For a message that names no complaint address itself. */
  complaintAddress: string | null
  visit: Visit
}

export type Simulation = ReturnType<typeof createSimulation>

export interface CaptureRefusal {
  code: number
  text: string
}

const MOST_REMEMBERED = 10_000
const MOST_WAITING = 1_000
/** Real time: longer than the outcome of a delivery takes to be recorded. */
const LEAST_WAIT = SECOND / 2
const SENDING_TRIES = 3

const PAUSE_BETWEEN_TRIES = SECOND
const LONGEST_WAIT = 10 * SECOND

export function createSimulation(options: SimulationOptions) {
  const { clock, logger } = options
  /** Refusals so far of messages that pass later; the oldest first. */
  const refusals = new Map<string, number>()
  const waiting = new Set<() => void>()

  const countRefusal = (key: string, most: number): boolean => {
    const before = refusals.get(key) ?? 0
    refusals.delete(key)
    if (before >= most) return false
    const [oldest] = refusals.keys()
    if (oldest !== undefined && refusals.size >= MOST_REMEMBERED) refusals.delete(oldest)
    refusals.set(key, before + 1)
    return true
  }
  const later = (milliseconds: number, work: () => Promise<void>): void => {
    if (waiting.size >= MOST_WAITING) return logger.warn('too many simulated recipients at once, one does nothing more')
    const startedAt = performance.now()
    let cancel = clock.after(milliseconds, () => {
      const timer = setTimeout(
        () => {
          waiting.delete(end)
          work().catch((thrown: unknown) => logger.warn({ err: thrown }, 'a simulated recipient failed'))
        },
        Math.max(0, LEAST_WAIT - (performance.now() - startedAt)),
      )
      cancel = () => clearTimeout(timer)
    })
    const end = (): void => cancel()
    waiting.add(end)
  }
  const report = (made: Report | null): void => {
    if (made !== null) later(REPORT_DELAY, () => sendPatiently(made, options))
  }

  return {
    /** What RCPT TO is answered with, and after how much real time; `refusal` null: 250. */
    answer(from: string, to: string): { refusal: CaptureRefusal | null; delayMilliseconds: number } {
      const behaviour = behaviourOf(to)
      if (behaviour.kind === 'dawdle') return { refusal: null, delayMilliseconds: behaviour.milliseconds }
      if (behaviour.kind !== 'refuse') return { refusal: null, delayMilliseconds: 0 }
      const { code, text, times } = behaviour
      const isRefused = times === null || countRefusal(`${from} ${to}`.toLowerCase(), times)
      return { refusal: isRefused ? { code, text } : null, delayMilliseconds: 0 }
    },
    /** True when the bytes of a message to one of these are needed. */
    needsBytes: (recipients: readonly string[]): boolean =>
      recipients.some((recipient) => hasSequel(behaviourOf(recipient))),
    /** Plans what follows the delivery of a message to one recipient. */
    async delivered(mail: ReportedMail): Promise<void> {
      const behaviour = behaviourOf(mail.to)
      const facts = { hostName: options.hostName, at: clock.now(), id: randomUUID().replaceAll('-', '') }
      if (behaviour.kind === 'bounce-later') report(bounceReport(mail, facts))
      if (behaviour.kind === 'complain') {
        report(complaintReport(mail, { ...facts, complaintAddress: options.complaintAddress }))
      }
      if (behaviour.kind !== 'visit') return
      const urls = trackingUrls(mail.bytes, behaviour.clicks ? ['o', 'c'] : ['o'])
      if (urls.length > 0) later(VISIT_DELAY, () => visitAll(urls, options.visit))
    },
    /** Nothing more follows. */
    stop(): void {
      for (const end of waiting) end()
      waiting.clear()
    },
  }
}

function hasSequel({ kind }: SimulatedBehaviour): boolean {
  return kind === 'bounce-later' || kind === 'complain' || kind === 'visit'
}

async function sendPatiently(report: Report, { inboundAddress, hostName, logger }: SimulationOptions): Promise<void> {
  const place = await inboundAddress()
  if (place === null) return logger.warn('a simulated report has nowhere to go: there is no inbound server')
  for (let left = SENDING_TRIES - 1; ; left -= 1) {
    try {
      return await sendReport(report, place, hostName)
    } catch (thrown) {
      if (left === 0) throw thrown
      // A report is no reason for the process to stay.
      await pause(PAUSE_BETWEEN_TRIES, undefined, { ref: false })
    }
  }
}

/**
 * As a stranger's mail server would: over SMTP, with the null sender; waits are in real time. Rejects when the report
 * is not taken. RFC 5321, RFC 3464 §2.
 */
function sendReport(report: Report, { address, port }: InboundPlace, hostName: string): Promise<void> {
  const connection = new SMTPConnection({
    host: address,
    port,
    name: hostName,
    secure: false,
    ignoreTLS: true,
    connectionTimeout: LONGEST_WAIT,
    greetingTimeout: LONGEST_WAIT,
    socketTimeout: LONGEST_WAIT,
  })
  return new Promise<void>((resolve, reject) => {
    connection.once('end', () => reject(new Error('the inbound server closed the connection')))
    connection.on('error', reject)
    connection.connect((failure) => {
      if (failure !== undefined) return reject(failure)
      connection.send({ from: '', to: [report.to] }, report.bytes, (refusal) => {
        if (refusal === null) resolve()
        else reject(refusal)
      })
    })
  }).finally(() => connection.quit())
}

/** One after the other, as somebody reads. */
async function visitAll(urls: readonly string[], visit: Visit): Promise<void> {
  for (const url of urls) await visit(url)
}

// The end of an address up to /o/ or /c/, and a token of 56 characters of base32.
const TRACKING_TOKEN = /\/([oc])\/[a-z2-7]{56}(?![a-z2-7])/g
const ADDRESS_IN_FRONT = /https?:\/\/[^\s"'<>]+$/
const MOST_IN_FRONT = 300

/** Of pixel and link; a message that is not tracked has none. */
function trackingUrls(bytes: Buffer, letters: readonly string[]): string[] {
  const html = findSubmittedHtml(closed(bytes))?.html ?? ''
  const urls = new Map<string, string>()
  for (const { 0: end, 1: letter = '', index } of html.matchAll(TRACKING_TOKEN)) {
    const front = ADDRESS_IN_FRONT.exec(html.slice(Math.max(0, index - MOST_IN_FRONT), index))?.[0]
    if (front !== undefined && letters.includes(letter) && !urls.has(letter)) urls.set(letter, `${front}${end}`)
    if (urls.size === letters.length) break
  }
  return letters.flatMap((letter) => urls.get(letter) ?? [])
}

/** Of a long message only its beginning is here: parts of ours that are open end there. */
function closed(bytes: Buffer): Buffer {
  const delimiters = new Set(bytes.toString('latin1').match(/^--=_-[0-9a-f]{24}-Part_\d/gm))
  return Buffer.concat([
    bytes,
    ...[...delimiters].toReversed().map((delimiter) => Buffer.from(`\r\n${delimiter}--\r\n`)),
  ])
}
