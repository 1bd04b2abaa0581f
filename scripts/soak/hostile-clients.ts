/**
 * Clients that mean ill or are broken, one after the other of each kind, as long as the soak goes on: slow bodies,
 * requests that are given up, wrong keys, bodies that are too large, and fuzzed dialogues at the SMTP doors. What they
 * get is told by kind; that they change nothing for others is judged by the rest.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { fuzzedDialogue } from '../../test/fuzz/fuzzed-dialogues.ts'
import { openRawHttp, type RawHttp } from '../../test/fuzz/raw-http.ts'
import { leadDialogue } from '../../test/fuzz/raw-smtp.ts'
import type { RandomSource } from '../../test/support/random-source.ts'
import { SENDING_DOMAIN } from '../../test/support/two-ips.ts'
import type { SoakScene } from './scene.ts'

export interface HostileClients {
  /** What they got: by kind and status. */
  readonly answers: ReadonlyMap<string, number>
  /** What they must not get. */
  readonly faults: readonly string[]
  stop(): Promise<void>
}

const PAUSE = 300
const DRIP = 500
const DRIPS = 20
const TOO_LARGE = 100 * 2 ** 20

export function startHostileClients(scene: SoakScene, random: RandomSource): HostileClients {
  const answers = new Map<string, number>()
  const faults: string[] = []
  let isStopped = false
  let number = 0
  const open = (): Promise<RawHttp> =>
    openRawHttp(scene.httpPort, `127.${40 + random.integer(50)}.${random.integer(256)}.${1 + random.integer(254)}`)
  const head = (length: number, key = scene.key): string =>
    `POST /v1/email/send HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\n` +
    `Content-Length: ${length}\r\n\r\n`
  const note = (kind: string, status: number | null): void => {
    const name = `${kind} ${status ?? 'none'}`
    answers.set(name, (answers.get(name) ?? 0) + 1)
    if (status !== null && status >= 500 && status !== 503) faults.push(`${kind}: answered ${status}`)
  }
  const mail = (to: string): string => JSON.stringify({ to, from: `a@${SENDING_DOMAIN}`, subject: 'x', text: 'x' })
  const ask = async (kind: string, text: string): Promise<void> => {
    const connection = await open()
    try {
      note(kind, (await connection.ask(Buffer.from(text), false))?.status ?? null)
    } finally {
      connection.close()
    }
  }
  const kinds: Record<string, () => Promise<void>> = {
    async slow() {
      const connection = await open()
      for (let drip = 0; drip < DRIPS && connection.isOpen && !isStopped; drip++) {
        connection.write(drip === 0 ? head(DRIPS * 2) : ' ')
        await sleep(DRIP)
      }
      connection.close()
      note('slow', null)
    },
    async 'given up'() {
      const to = `gone-${number++}@good1.test`
      const body = mail(to)
      const connection = await open()
      scene.ledger.doubt(to)
      connection.write(head(Buffer.byteLength(body)) + body)
      await sleep(random.integer(4))
      connection.close()
      note('given up', null)
    },
    'wrong key': () => ask('wrong key', head(2, 'sk_live_wrong') + '{}'),
    'too large': () => ask('too large', head(TOO_LARGE)),
    async dialogue() {
      const door = random.integer(2) === 0 ? 'reports' : 'submission'
      const dialogue = fuzzedDialogue({ seed: 1, index: 1_000_000 + number++, door }, 'sk_live_wrong', [])
      const port = door === 'reports' ? scene.reportsPort : scene.submissionPort
      const text = await leadDialogue(dialogue, port, `127.${90 + random.integer(9)}.1.${1 + random.integer(254)}`)
      note('dialogue', null)
      if (text.includes('451 4.3.0')) faults.push(`${dialogue.name}: ${text.slice(-200)}`)
    },
  }
  const working = Object.values(kinds).map(async (work) => {
    while (!isStopped) {
      // The server may be down just now.
      await work().catch(() => {})
      await sleep(PAUSE)
    }
  })
  return {
    answers,
    faults,
    async stop() {
      isStopped = true
      await Promise.all(working)
    },
  }
}
