/**
 * Programs that a test needs beyond npm: found, or the reason for a skip. A missing one is a failure in `.ci/run`,
 * where they are installed.
 */
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'

/** false when all are there (tap's "do not skip"), else the sentence that says what is missing. */
export function missingPrograms(programs: Record<string, readonly string[]>): string | false {
  const missing = Object.entries(programs)
    .filter(([program]) => !isThere(program))
    .map(([, packages]) => packages.join(' '))
  return missing.length === 0 ? false : `needs the Debian packages ${[...new Set(missing)].join(', ')}`
}

/** Debian's own: its packages are not seen by another python3 that stands before it in PATH. */
export const PYTHON = '/usr/bin/python3'

export function hasPythonModule(name: string): boolean {
  return spawnSync(PYTHON, ['-c', `import ${name}`], { stdio: 'ignore' }).status === 0
}

function isThere(program: string): boolean {
  const folders = [...(process.env['PATH'] ?? '').split(':'), '/usr/sbin', '/usr/bin']
  return program.startsWith('python3:')
    ? hasPythonModule(program.slice('python3:'.length))
    : folders.some((folder) => existsSync(`${folder}/${program}`))
}
