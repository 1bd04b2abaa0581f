/**
 * Haraka as a relay that signs: two workers, `relay`, `dkim` with the key of the comparison, and a plugin that names
 * the sink as every domain's MX. It is not installed here: `npm install Haraka haraka-plugin-dkim` in a folder of its
 * own, named by --haraka.
 */
import { existsSync, mkdirSync, mkdtempSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { freePort } from '../../test/support/serve-process.ts'
import { startChildServer } from './child-server.ts'
import { accepts } from './sink.ts'
import { runSmtpSource } from './smtp-source.ts'
import type { Setting, System } from './system.ts'

const WORKERS = 2
const SESSIONS = 20

export const HOW_TO_GET_HARAKA = 'npm install Haraka haraka-plugin-dkim in a folder, then --haraka FOLDER'

/** The program, or undefined when it is not there. */
export function findHaraka(folder: string | undefined): string | undefined {
  const places = folder === undefined ? (process.env['PATH'] ?? '').split(':') : [join(folder, 'node_modules', '.bin')]
  return places.map((place) => resolve(place, 'haraka')).find((path) => existsSync(path))
}

export async function startHaraka(program: string, setting: Setting): Promise<System> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-bench-haraka-'))
  const port = await freePort()
  writeFiles(folder, port, setting)
  // Where the program is, its plugins are: node_modules/Haraka/bin/haraka.
  symlinkSync(join(dirname(realpathSync(program)), '..', '..'), join(folder, 'node_modules'))
  const child = await startChildServer({
    program,
    words: ['-c', folder],
    folder,
    isListening: () => accepts('127.0.0.1', port),
  })
  return {
    name: 'haraka_dkim',
    isSigning: true,
    comesToSpeed: true,
    handOver: (load) =>
      runSmtpSource({
        ...load,
        port,
        sessions: SESSIONS,
        from: `shop@${setting.domain}`,
        recipientDomain: 'dest.test',
      }),
    processes: () => ({ haraka: child.processId }),
    stop: () => child.stop(),
  }
}

function writeFiles(folder: string, port: number, { sinkPort, domain, selector, privateKeyPem }: Setting): void {
  const keys = join(folder, 'config', 'dkim', domain)
  for (const path of [keys, join(folder, 'plugins'), join(folder, 'queue')]) mkdirSync(path, { recursive: true })
  const files: Record<string, string> = {
    'config/smtp.ini': `listen=127.0.0.1:${port}\nnodes=${WORKERS}\n`,
    // With a folder of its own Haraka takes nothing from the file it ships.
    'config/connection.ini':
      '[haproxy]\n[headers]\nmax_lines=1000\nmax_received=100\n[max]\nbytes=26214400\n' +
      'mime_parts=1000\nline_length=512\ndata_line_length=992\n[message]\nhelo=ready\nclose=closing\n' +
      '[uuid]\nbanner_chars=0\ndeny_chars=0\n',
    'config/me': 'relay.bench.test\n',
    'config/loglevel': 'ERROR\n',
    'config/plugins': 'relay\ndkim\nbench_mx\n',
    'config/relay.ini': '[relay]\nacl=true\n',
    'config/relay_acl_allow': '127.0.0.0/8\n',
    'config/dkim.ini':
      '[sign]\nenabled=true\nheaders=From, To, Subject, Date, Message-ID\n' +
      '[canon]\nbody=relaxed\n[verify]\nenabled=false\n',
    'config/outbound.ini': 'enable_tls=false\nlocal_mx_ok=true\n',
    [`config/dkim/${domain}/private`]: privateKeyPem,
    [`config/dkim/${domain}/selector`]: selector,
    'plugins/bench_mx.js':
      'exports.hook_get_mx = function (next) {\n' +
      `  next(OK, { priority: 0, exchange: '127.0.0.1', port: ${sinkPort} })\n}\n`,
  }
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content)
}
