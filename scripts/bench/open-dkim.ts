/**
 * OpenDKIM as a signing milter on a unix socket: relaxed/relaxed, the key of the comparison, everything else as it
 * ships. Over a TCP socket it would be less than half as fast, and no fair opponent.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { until } from '../../test/support/until.ts'
import type { Setting } from './system.ts'

export interface OpenDkim {
  socket: string
  processId: number
  stop(): Promise<void>
}

export async function startOpenDkim(setting: Setting): Promise<OpenDkim> {
  const folder = mkdtempSync(join(tmpdir(), 'posthorn-bench-opendkim-'))
  // Postfix's user opens the socket.
  chmodSync(folder, 0o755)
  const [file, key, socket] = ['opendkim.conf', 'private.pem', 'milter.sock'].map((name) => join(folder, name)) as
    [string, string, string]
  writeFileSync(key, setting.privateKeyPem, { mode: 0o600 })
  writeFileSync(file, [
    'Mode s', 'Canonicalization relaxed/relaxed', 'SignatureAlgorithm rsa-sha256', `Domain ${setting.domain}`,
    `Selector ${setting.selector}`, `KeyFile ${key}`, `Socket local:${socket}`, 'UMask 000', 'RequireSafeKeys no',
    `PidFile ${join(folder, 'opendkim.pid')}`, '',
  ].join('\n'))
  const child = spawn('opendkim', ['-f', '-x', file], { stdio: ['ignore', 'ignore', 'inherit'] })
  const ended = once(child, 'exit')
  const stop = async (): Promise<void> => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill()
      await ended
    }
    rmSync(folder, { recursive: true, force: true })
  }
  try {
    await until('OpenDKIM listens', () => {
      if (child.exitCode !== null) throw new Error(`opendkim ended with ${child.exitCode}`)
      return existsSync(socket)
    })
  } catch (thrown) {
    await stop()
    throw thrown
  }
  return { socket, processId: child.pid ?? Number.NaN, stop }
}
