/**
 * A service manager for programs that notify one: a `systemd-notify` in a folder of its own that writes down what it is
 * told. Put `folder` before PATH, and NOTIFY_SOCKET to anything.
 */
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import type { Test } from 'tap'

export interface FakeSystemdNotify {
  /** For the environment of the program. */
  environment: { PATH: string; NOTIFY_SOCKET: string }
  /** What it was told so far, one call each, the assignments with a space between. */
  notices(): string[]
}

/** Calls with `slowWord` in them take a moment longer; with `fails`, all of them end with 1. */
export function fakeSystemdNotify(t: Test, options: { slowWord?: string; fails?: boolean } = {}): FakeSystemdNotify {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-notify-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const program = join(folder, 'systemd-notify')
  const written = join(folder, 'notices')
  writeFileSync(
    program,
    `#!/bin/sh
case "$*" in *${options.slowWord ?? 'never'}*) sleep 0.3 ;; esac
echo "$*" >> ${written}
exit ${options.fails === true ? 1 : 0}
`,
  )
  chmodSync(program, 0o755)
  return {
    environment: { PATH: `${folder}${delimiter}${process.env['PATH'] ?? ''}`, NOTIFY_SOCKET: join(folder, 'socket') },
    notices: () => (existsSync(written) ? readFileSync(written, 'utf8').split('\n').slice(0, -1) : []),
  }
}
