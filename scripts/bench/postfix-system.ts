/**
 * Debian's Postfix as a relay, alone or with OpenDKIM as its milter over a unix socket: configuration, queue and log in
 * a folder of its own, everything else as it ships. Needs root, as Postfix does. Performance.md 2.
 */
import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
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
const POSTFIX = '/usr/sbin/postfix'

export async function startPostfixAlone(setting: Setting): Promise<System> {
  const postfix = await startPostfixRelay(setting)
  return {
    name: 'postfix',
    isSigning: false,
    handOver: (load) => handOver(postfix, setting, load),
    processes: () => ({ postfix: postfix.processId }),
    afterRun: async () => {},
    stop: async () => postfix.stop(),
  }
}

export async function startPostfixWithOpenDkim(setting: Setting): Promise<System> {
  const milter = await startOpenDkim(setting)
  const postfix = await startPostfixRelay({ ...setting, more: { smtpd_milters: `unix:${milter.socket}` } })
  return {
    name: 'postfix_opendkim',
    isSigning: true,
    handOver: (load) => handOver(postfix, setting, load),
    processes: () => ({ postfix: postfix.processId, opendkim: milter.processId }),
    afterRun: async () => {},
    async stop() {
      postfix.stop()
      await milter.stop()
    },
  }
}

export async function startPostfixRelay(setting: PostfixSetting): Promise<RunningPostfix> {
  const folder = mkdtempSync(join(tmpdir(), 'posthorn-bench-postfix-'))
  // Postfix's own user must reach its queue.
  chmodSync(folder, 0o755)
  const [etc, spool, data] = ['etc', 'spool', 'data'].map((name) => join(folder, name)) as [string, string, string]
  for (const path of [etc, spool, data]) mkdirSync(path)
  chownSync(data, idOf('-u'), idOf('-g'))
  const port = await freePort()
  writeFileSync(join(etc, 'main.cf'), mainSettings(setting, { folder, spool, data }))
  writeFileSync(join(etc, 'master.cf'), services(port))
  execFileSync(POSTFIX, ['-c', etc, 'start'], { stdio: 'pipe' })
  const stop = (): void => {
    execFileSync(POSTFIX, ['-c', etc, 'stop'], { stdio: 'pipe' })
    rmSync(folder, { recursive: true, force: true })
  }
  const master = join(spool, 'pid', 'master.pid')
  try {
    await until('Postfix listens', async () => existsSync(master) && (await accepts('127.0.0.1', port)))
  } catch (thrown) {
    stop()
    throw thrown
  }
  return { port, processId: Number(readFileSync(master, 'utf8')), stop }
}

function handOver(
  { port }: RunningPostfix, { domain }: Setting, load: { messages: number; htmlBytes: number },
): Promise<void> {
  return runSmtpSource({ ...load, port, sessions: SESSIONS, from: `shop@${domain}`, recipientDomain: 'dest.test' })
}

function mainSettings(setting: PostfixSetting, where: Record<'folder' | 'spool' | 'data', string>): string {
  return Object.entries({
    compatibility_level: '3.6',
    queue_directory: where.spool,
    data_directory: where.data,
    maillog_file: join(where.folder, 'mail.log'),
    maillog_file_prefixes: where.folder,
    myhostname: 'relay.bench.test',
    mydestination: '',
    relayhost: `[127.0.0.1]:${setting.sinkPort}`,
    inet_interfaces: '127.0.0.1',
    inet_protocols: 'ipv4',
    mynetworks: '127.0.0.0/8',
    smtp_host_lookup: 'native',
    smtpd_peername_lookup: 'no',
    alias_maps: '',
    biff: 'no',
    ...setting.more,
  }).map(([name, value]) => `${name} = ${value}\n`).join('')
}

/** Debian's master.cf without what a relay does not use, and without chroot. */
function services(port: number): string {
  return [
    `127.0.0.1:${port} inet n - n - - smtpd`,
    'pickup unix n - n 60 1 pickup',
    'cleanup unix n - n - 0 cleanup',
    'qmgr unix n - n 300 1 qmgr',
    'rewrite unix - - n - - trivial-rewrite',
    'bounce unix - - n - 0 bounce',
    'defer unix - - n - 0 bounce',
    'trace unix - - n - 0 bounce',
    'proxymap unix - - n - - proxymap',
    'smtp unix - - n - - smtp',
    'relay unix - - n - - smtp',
    'error unix - - n - - error',
    'retry unix - - n - - error',
    'anvil unix - - n - 1 anvil',
    'scache unix - - n - 1 scache',
    'postlog unix-dgram n - n - 1 postlogd',
    '',
  ].join('\n')
}

function idOf(flag: '-u' | '-g'): number {
  return Number(execFileSync('id', [flag, 'postfix'], { encoding: 'utf8' }))
}
