/**
 * The honest clients: applications that send by HTTP, one message or a batch, and by SMTP submission. They pause so that
 * the machine is busy with a share of its time, and note in the ledger what was answered, and what was not.
 */
import { availableParallelism } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { smtpClient, type SmtpClient } from '../../test/inbound/smtp-client.ts'
import type { RandomSource } from '../../test/support/random-source.ts'
import { HOSTILE_TEMPERS } from '../../test/support/receiving-servers.ts'
import { SENDING_DOMAIN } from '../../test/support/two-ips.ts'
import { cpuSeconds } from '../bench/process-figures.ts'
import type { SoakScene } from './scene.ts'

export interface Load {
  /** Answers by their kind, e.g. `http 200`, `smtp 250`, `none`. */
  readonly answers: ReadonlyMap<string, number>
  /** Messages a second that are aimed at. */
  rate(): number
  stop(): Promise<void>
}

export interface LoadOptions {
  random: RandomSource
  /** Of the time of all cores, this process and the server together. */
  share: number
  /** Messages a second. */
  mostRate: number
}

const CLIENTS = 6
const BATCH = 10
const MAILS_OF_CONNECTION = 50
/** Share of the mail that goes to receivers with a temper. */
const HOSTILE_SHARE = 0.1
const PAUSE = 200
const ADJUST_EVERY = 5_000
const FIRST_RATE = 20
/** One step of the rate, up or down, at most. */
const STEP = 1.3

export function startLoad(scene: SoakScene, { random, share, mostRate }: LoadOptions): Load {
  const answers = new Map<string, number>()
  let isStopped = false
  let rate = FIRST_RATE
  let sent = 0
  const count = (name: string): void => void answers.set(name, (answers.get(name) ?? 0) + 1)
  const recipient = (): string => {
    const domain =
      random.next() < HOSTILE_SHARE ? `${random.oneOf(HOSTILE_TEMPERS)}.test` : `good${random.integer(10)}.test`
    return `reader-${sent++}@${domain}`
  }
  const pace = (messages: number): Promise<void> => sleep((1_000 * CLIENTS * messages) / rate)
  const client = async (work: () => Promise<void>): Promise<void> => {
    while (!isStopped) await work().catch(() => sleep(PAUSE))
  }
  const working = [
    ...Array.from({ length: CLIENTS / 2 }, () =>
      client(async () => {
        const recipients = Array.from({ length: random.integer(4) === 0 ? BATCH : 1 }, recipient)
        await Promise.all([pace(recipients.length), sendByHttp(scene, recipients, count)])
      }),
    ),
    ...Array.from({ length: CLIENTS / 2 }, () =>
      client(() => sendBySmtp(scene, { recipient, pace, count, isStopped: () => isStopped })),
    ),
  ]
  const adjusting = adjustRate(scene, share, (factor) => {
    rate = Math.min(mostRate, Math.max(1, rate * factor))
    return isStopped
  })
  return {
    answers,
    rate: () => rate,
    async stop() {
      isStopped = true
      await Promise.all([...working, adjusting])
    },
  }
}

async function sendByHttp(scene: SoakScene, recipients: string[], count: (name: string) => void): Promise<void> {
  const [to] = recipients
  const isBatch = recipients.length > 1
  const whom = isBatch ? { recipients: recipients.map((each) => ({ to: each })) } : { to }
  const body = { from: `shop@${SENDING_DOMAIN}`, subject: 'Order', text: 'On its way\n'.repeat(50), ...whom }
  try {
    const answer = await fetch(`http://127.0.0.1:${scene.httpPort}/v1/email/${isBatch ? 'batch' : 'send'}`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${scene.key}`, 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    })
    const told = (await answer.json()) as { message_id?: string; results?: { message_id?: string }[] }
    count(`http ${answer.status}`)
    for (const { message_id: id } of [told, ...(told.results ?? [])]) if (id !== undefined) scene.ledger.accept(id)
  } catch (thrown) {
    for (const each of recipients) scene.ledger.doubt(each)
    count('http none')
    throw thrown
  }
}

interface SmtpWork {
  recipient: () => string
  pace: (messages: number) => Promise<void>
  count: (name: string) => void
  isStopped: () => boolean
}

/** Some mails over one connection. */
async function sendBySmtp(scene: SoakScene, { recipient, pace, count, isStopped }: SmtpWork): Promise<void> {
  const client: SmtpClient = await smtpClient({ port: scene.submissionPort })
  try {
    if (!(await client.greet(scene.key)).startsWith('235')) return
    for (let mail = 0; mail < MAILS_OF_CONNECTION && !isStopped(); mail++) {
      const to = recipient()
      const text = `From: shop@${SENDING_DOMAIN}\r\nTo: ${to}\r\nSubject: Order\r\n\r\n${'On its way\r\n'.repeat(50)}`
      const [reply] = await Promise.all([client.mail([to], text), pace(1)])
      count(`smtp ${/^\d/.test(reply) ? reply.slice(0, 3) : 'none'}`)
      if (!/^\d/.test(reply)) scene.ledger.doubt(to)
      for (const [id] of reply.startsWith('250') ? reply.matchAll(/msg_[0-9a-z]{26}/g) : []) scene.ledger.accept(id)
      if (!reply.startsWith('250')) return await sleep(PAUSE)
    }
  } finally {
    client.destroy()
  }
}

/** Tells the factor that leads to the share. */
async function adjustRate(scene: SoakScene, share: number, take: (factor: number) => boolean): Promise<void> {
  for (let isOver = false; !isOver;) {
    const before = busySeconds(scene)
    await sleep(ADJUST_EVERY)
    const used = (busySeconds(scene) - before) / ((ADJUST_EVERY / 1_000) * availableParallelism())
    // After a restart the server has used less than before.
    isOver = take(used > 0 ? Math.min(STEP, Math.max(1 / STEP, share / used)) : 1)
  }
}

function busySeconds({ server }: SoakScene): number {
  const { user, system } = process.cpuUsage()
  try {
    return (user + system) / 1_000_000 + cpuSeconds(server.processId)
  } catch {
    // It is not running just now.
    return 0
  }
}
