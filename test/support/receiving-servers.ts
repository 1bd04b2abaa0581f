/**
 * Receiving servers, each with a temper of its own, behind domains of DNS: `good0.test` to `good9.test` take everything,
 * the others are named after their temper. What was taken is told to a ledger before its 250 is written.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { startSmtpLineServer, type SmtpDialogue, type SmtpLineServer } from './smtp-line-server.ts'
import type { MailLedger } from './mail-ledger.ts'
import type { RandomSource } from './random-source.ts'
import type { Zone } from './zone.ts'

/**
 * busy: 4xx now and then; refusing: 5xx; hanging: no answer to MAIL; cutting: the connection ends in the middle;
 * tarpit: each answer takes its time; greylist: a recipient is put off once.
 */
export const HOSTILE_TEMPERS = ['busy', 'refusing', 'hanging', 'cutting', 'tarpit', 'greylist'] as const
type Temper = 'good' | (typeof HOSTILE_TEMPERS)[number]

export interface ReceivingServers {
  /** The same for all of them. */
  port: number
  zone: Zone
  close(): Promise<void>
}

const GOOD_DOMAINS = Array.from({ length: 10 }, (_, index) => `good${index}.test`)
const TEMPERS: readonly Temper[] = ['good', ...HOSTILE_TEMPERS]
/** Milliseconds between two answers of a tarpit. */
const TARPIT = 300
/** Share of what is put off, refused or cut, where the temper is not the same to everybody. */
const SHARE = 0.3

export async function startReceivingServers(ledger: MailLedger, random: RandomSource): Promise<ReceivingServers> {
  let port = 0
  const servers: SmtpLineServer[] = []
  for (const [index, temper] of TEMPERS.entries()) {
    const server = await startSmtpLineServer(addressOf(index), dialogueOf(temper, ledger, random), port)
    servers.push(server)
    port = server.port
  }
  const domains = [
    ...GOOD_DOMAINS.map((domain) => [domain, addressOf(0)] as const),
    ...HOSTILE_TEMPERS.map((temper, index) => [`${temper}.test`, addressOf(index + 1)] as const),
  ]
  const zone: Zone = {}
  for (const [domain, address] of domains) {
    zone[domain] = { MX: [`10 mx.${domain}`] }
    zone[`mx.${domain}`] = { A: [address] }
  }
  return { port, zone, close: async () => void (await Promise.all(servers.map((server) => server.close()))) }
}

function addressOf(index: number): string {
  return `127.0.2.${index + 1}`
}

type Begin = Parameters<typeof startSmtpLineServer>[1]

function dialogueOf(temper: Temper, ledger: MailLedger, random: RandomSource): Begin {
  const seen = new Set<string>()
  return (socket): SmtpDialogue => {
    let from = ''
    let to = ''
    const take = (): void => {
      ledger.arrive(from, to)
      socket.write('250 2.0.0 taken\r\n')
    }
    return {
      onCommand(verb, path) {
        if (verb === 'MAIL') [from, to] = [path, '']
        if (verb === 'MAIL' && temper === 'hanging') return null
        if (verb === 'DATA' && to === '') return '554 5.5.1 no recipient'
        if (verb === 'DATA' && temper === 'cutting' && random.next() < SHARE) socket.destroy()
        if (verb !== 'RCPT') return undefined
        const refusal = refusalOf(temper, random, !seen.has(path))
        if (temper === 'greylist') seen.add(path)
        if (refusal === undefined) to = path
        return refusal
      },
      async onMail() {
        if (temper === 'tarpit') await sleep(TARPIT)
        if (temper === 'busy' && random.next() < SHARE) return void socket.write('451 4.3.2 try again later\r\n')
        if (temper === 'cutting' && random.next() < SHARE) return void socket.destroy()
        if (!socket.destroyed) take()
      },
    }
  }
}

function refusalOf(temper: Temper, random: RandomSource, isNew: boolean): string | undefined {
  if (temper === 'refusing' && random.next() < SHARE) return '550 5.1.1 no such user here'
  if (temper === 'busy' && random.next() < SHARE) return '450 4.2.1 mailbox busy'
  return temper === 'greylist' && isNew ? '451 4.7.1 greylisted, come again' : undefined
}
