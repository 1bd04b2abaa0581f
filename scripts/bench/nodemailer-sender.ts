/**
 * nodemailer's pool as a process of its own: 20 connections, no queue, nothing durable. Reads `{messages, htmlBytes}`
 * from the bench, sends that many, and answers `done`. Ends with the bench.
 */
import { createTransport } from 'nodemailer'
import { htmlOf } from './message.ts'
import type { Load } from './system.ts'

interface SenderData {
  sinkPort: number
  domain: string
  /** null: unsigned. */
  dkim: { domainName: string; keySelector: string; privateKey: string } | null
}

const POOL = 20
/** Never the limit. */
const MESSAGES_PER_CONNECTION = 1_000_000

const { sinkPort, domain, dkim } = JSON.parse(process.argv[2] ?? '{}') as SenderData
const transport = createTransport({
  pool: true,
  host: '127.0.0.1',
  port: sinkPort,
  secure: false,
  ignoreTLS: true,
  maxConnections: POOL,
  maxMessages: MESSAGES_PER_CONNECTION,
  ...(dkim === null ? {} : { dkim }),
})

async function send({ messages, htmlBytes }: Load): Promise<void> {
  const html = htmlOf(htmlBytes)
  let next = 0
  const client = async (): Promise<void> => {
    while (next < messages) {
      const number = next++
      await transport.sendMail({
        from: `shop@${domain}`,
        to: `reader-${number}@dest.test`,
        subject: `Order ${number}`,
        html,
        text: 'Your order has left the house and is on its way to you.',
      })
    }
  }
  await Promise.all(Array.from({ length: POOL }, client))
}

process.on('message', (load: Load) => {
  send(load).then(
    () => process.send?.('done'),
    (thrown: unknown) => process.send?.(String(thrown)),
  )
})
process.once('disconnect', () => process.exit(0))
