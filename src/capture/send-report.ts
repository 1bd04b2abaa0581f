/**
 * Sends one report to the inbound server as a stranger's mail server would: over SMTP, with the null sender.
 *
 * Rejects when it is not taken; the socket's waits are in real time. RFC 5321, RFC 3464 §2.
 */
import SMTPConnection from 'nodemailer/lib/smtp-connection'
import { SECOND } from '../base/clock.ts'
import type { Report } from './simulated-reports.ts'

export interface InboundPlace {
  address: string
  port: number
}

const LONGEST_WAIT = 10 * SECOND

export function sendReport(report: Report, { address, port }: InboundPlace, hostName: string): Promise<void> {
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
