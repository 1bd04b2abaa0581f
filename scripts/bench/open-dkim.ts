/**
 * OpenDKIM as a signing milter on a unix socket: relaxed/relaxed, the key of the comparison, everything else as it
 * ships. Over a TCP socket it would be less than half as fast, and no fair opponent.
 */
import { chmodSync, existsSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startChildServer, type ChildServer } from './child-server.ts'
import type { Setting } from './system.ts'

export interface OpenDkim extends ChildServer {
  socket: string
}

export async function startOpenDkim(setting: Setting): Promise<OpenDkim> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-bench-opendkim-'))
  // Postfix's user opens the socket.
  chmodSync(folder, 0o755)
  const [file, key, socket] = ['opendkim.conf', 'private.pem', 'milter.sock'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ]
  writeFileSync(key, setting.privateKeyPem, { mode: 0o600 })
  writeFileSync(
    file,
    [
      'Mode s',
      'Canonicalization relaxed/relaxed',
      'SignatureAlgorithm rsa-sha256',
      `Domain ${setting.domain}`,
      `Selector ${setting.selector}`,
      `KeyFile ${key}`,
      `Socket local:${socket}`,
      'UMask 000',
      'RequireSafeKeys no',
      `PidFile ${join(folder, 'opendkim.pid')}`,
      '',
    ].join('\n'),
  )
  const child = await startChildServer({
    program: 'opendkim',
    words: ['-f', '-x', file],
    folder,
    isListening: () => existsSync(socket),
  })
  return { socket, ...child }
}
