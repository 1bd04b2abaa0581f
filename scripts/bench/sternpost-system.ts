/**
 * Sternpost in the comparison: single sends by 50 HTTP clients, or one client with batches of 1,000 recipients. After
 * each run the rows are counted: message delivered, event and webhook delivery there, `synchronous` FULL.
 */
import { runLoad } from './load.ts'
import { batchBody, messageBody } from './message.ts'
import { FROM, type Sternpost } from './sternpost.ts'
import type { Load, System } from './system.ts'

export const BATCH_RECIPIENTS = 1_000
const KILOBYTE = 1_024

/** Several systems may drive one server: they share the count of its messages. */
export interface MessageCount {
  accepted: number
}

export function sternpostSystem(sternpost: Sternpost, clients: number, count: MessageCount): System {
  return toSystem('sternpost', sternpost, count, ({ messages, htmlBytes }) =>
    runLoad({
      baseUrl: sternpost.server.baseUrl,
      apiKey: sternpost.key,
      clients,
      messages,
      body: messageBody({ from: FROM, recipientDomain: 'dest.test', htmlBytes }),
    }),
  )
}

/** Messages are rounded up to whole batches by the caller. */
export function batchSystem(sternpost: Sternpost, count: MessageCount): System {
  return toSystem('sternpost_batch', sternpost, count, ({ messages, htmlBytes }) =>
    runLoad({
      baseUrl: sternpost.server.baseUrl,
      apiKey: sternpost.key,
      clients: 1,
      path: '/v1/email/batch',
      messages: messages / BATCH_RECIPIENTS,
      body: batchBody({ from: FROM, recipientDomain: 'dest.test', htmlBytes }, BATCH_RECIPIENTS),
    }),
  )
}

function toSystem(
  name: string,
  sternpost: Sternpost,
  count: MessageCount,
  load: (load: Load) => Promise<unknown>,
): System {
  return {
    name,
    isSigning: true,
    comesToSpeed: true,
    async handOver(wanted) {
      await load(wanted)
      count.accepted += wanted.messages
    },
    processes: () => ({ sternpost: sternpost.server.processId }),
    settle: () => sternpost.settled(count.accepted),
    async check() {
      const { accepted } = count
      await sternpost.check({
        messages: accepted,
        delivered: accepted,
        deliveredEvents: accepted,
        webhookDeliveries: accepted,
      })
    },
    stop: () => sternpost.stop(),
  }
}

export function bytesOf(kilobytes: number): number {
  return kilobytes * KILOBYTE
}
