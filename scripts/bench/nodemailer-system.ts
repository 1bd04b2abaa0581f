/**
 * nodemailer's pool of 20, unsigned or signed with a PEM key: what an app without a mail server does. It queues nothing
 * and keeps no outcome.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Setting, System } from './system.ts'

const SENDER = fileURLToPath(new URL('./nodemailer-sender.ts', import.meta.url))

export function startNodemailer(setting: Setting): Promise<System> {
  return start('nodemailer', setting, null)
}

export function startSigningNodemailer(setting: Setting): Promise<System> {
  const { domain, selector, privateKeyPem } = setting
  const dkim = { domainName: domain, keySelector: selector, privateKey: privateKeyPem }
  return start('nodemailer_dkim', setting, dkim)
}

async function start(name: string, { sinkPort, domain }: Setting, dkim: unknown): Promise<System> {
  const data = JSON.stringify({ sinkPort, domain, dkim })
  const child = fork(SENDER, [data], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  return {
    name,
    isSigning: dkim !== null,
    comesToSpeed: true,
    async handOver({ messages, htmlBytes }) {
      child.send({ messages, htmlBytes })
      const [answer] = await once(child, 'message')
      if (answer !== 'done') throw new Error(`nodemailer: ${String(answer)}`)
    },
    processes: () => ({ nodemailer: child.pid ?? Number.NaN }),
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return
      const ended = once(child, 'exit')
      child.disconnect()
      await ended
    },
  }
}
