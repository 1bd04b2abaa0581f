/**
 * Debian's Postfix as a relay, alone or with OpenDKIM as its milter over a unix socket.
 */
import { existsSync, readFileSync } from 'node:fs'
import { makePostfixFolder, startPostfixIn } from '../../test/support/postfix-instance.ts'
import { freePort } from '../../test/support/serve-process.ts'
import { until } from '../../test/support/until.ts'
import { startOpenDkim } from './open-dkim.ts'
import { accepts } from './sink.ts'
import { runSmtpSource } from './smtp-source.ts'
import type { Setting, System } from './system.ts'

export interface PostfixSetting extends Pick<Setting, 'sinkPort' | 'domain'> {
  /** Further lines of main.cf. */
  more?: Record<string, string>
}

export interface RunningPostfix {
  port: number
  processId: number
  stop(): void
}

/** More of them are slower here. */
const SESSIONS = 4

export async function startPostfixAlone(setting: Setting): Promise<System> {
  const postfix = await startPostfixRelay(setting)
  return {
    name: 'postfix',
    isSigning: false,
    comesToSpeed: false,
    handOver: (load) => handOver(postfix, setting, load),
    processes: () => ({ postfix: postfix.processId }),
    stop: async () => postfix.stop(),
  }
}

export async function startPostfixWithOpenDkim(setting: Setting): Promise<System> {
  const milter = await startOpenDkim(setting)
  const postfix = await startPostfixRelay({ ...setting, more: { smtpd_milters: `unix:${milter.socket}` } })
  return {
    name: 'postfix_opendkim',
    isSigning: true,
    comesToSpeed: false,
    handOver: (load) => handOver(postfix, setting, load),
    processes: () => ({ postfix: postfix.processId, opendkim: milter.processId }),
    async stop() {
      postfix.stop()
      await milter.stop()
    },
  }
}

export async function startPostfixRelay(setting: PostfixSetting): Promise<RunningPostfix> {
  const port = await freePort()
  const { processIdFile, stop } = startPostfixIn(makePostfixFolder(), {
    settings: {
      myhostname: 'relay.bench.test',
      relayhost: `[127.0.0.1]:${setting.sinkPort}`,
      mynetworks: '127.0.0.0/8',
      smtp_host_lookup: 'native',
      ...setting.more,
    },
    listeners: [`127.0.0.1:${port} inet n - n - - smtpd`],
  })
  try {
    await until('Postfix listens', async () => existsSync(processIdFile) && (await accepts('127.0.0.1', port)))
  } catch (thrown) {
    stop()
    throw thrown
  }
  return { port, processId: Number(readFileSync(processIdFile, 'utf8')), stop }
}

function handOver(
  { port }: RunningPostfix,
  { domain }: Setting,
  load: { messages: number; htmlBytes: number },
): Promise<void> {
  return runSmtpSource({ ...load, port, sessions: SESSIONS, from: `shop@${domain}`, recipientDomain: 'dest.test' })
}
