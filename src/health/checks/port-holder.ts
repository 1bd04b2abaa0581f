/** Which program listens at a port of this machine, by `ss`. Never rejects. */
import { execFile } from 'node:child_process'
import { SECOND } from '../../base/clock.ts'

const ANSWER_MILLISECONDS = 5 * SECOND
/** As in: users:(("exim4",pid=812,fd=4),("exim4",pid=811,fd=4)) */
const HOLDER = /\("([^"]+)",pid=(\d+)/g

/** `exim4 (process 812)`; null: not known, nobody, or the socket unit, whose ports are ours. */
export function holderOf(port: number): Promise<string | null> {
  return new Promise((resolve) => {
    execFile('ss', ['-Hltnp', `sport = :${port}`], { timeout: ANSWER_MILLISECONDS }, (error, stdout) =>
      resolve(error === null ? holderIn(stdout) : null),
    )
  })
}

export function holderIn(text: string): string | null {
  const holders = [...text.matchAll(HOLDER)].map(([, name = '', processId = '']) => ({ name, processId }))
  const [first] = holders
  if (first === undefined || holders.some(({ name }) => name === 'systemd')) return null
  return `${first.name} (process ${first.processId})`
}
