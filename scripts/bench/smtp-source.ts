/**
 * Postfix's smtp-source as the client that hands messages over by SMTP: sessions kept open, one file as the message.
 * Rejects with what it said when it does not end with 0.
 */
import { execFile } from 'node:child_process'
import { rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { messageFile } from './message.ts'
import type { Load } from './system.ts'

export interface SourceOptions extends Load {
  port: number
  sessions: number
  from: string
  recipientDomain: string
}

const run = promisify(execFile)

export async function runSmtpSource(options: SourceOptions): Promise<void> {
  const { from, recipientDomain, htmlBytes, messages } = options
  const file = join(tmpdir(), `sternpost-bench-${process.pid}.eml`)
  writeFileSync(file, messageFile({ from, recipientDomain, htmlBytes }))
  const words = [
    '-d',
    '-s',
    String(Math.min(options.sessions, messages)),
    '-m',
    String(messages),
    '-f',
    from,
    '-t',
    `reader@${recipientDomain}`,
    '-F',
    file,
    `127.0.0.1:${options.port}`,
  ]
  try {
    await run('smtp-source', words)
  } finally {
    rmSync(file, { force: true })
  }
}
