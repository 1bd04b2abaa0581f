/**
 * Runs the operator's program that brings an IP to this machine, or takes it away (`cluster.ip_hook`): `HOOK acquire IP`
 * and `HOOK release IP`. Never rejects: what went wrong is a clause.
 */
import { spawn, type ChildProcess } from 'node:child_process'

type IpAct = 'acquire' | 'release'

/** null: it went well. */
export type RunIpHook = (act: IpAct, ip: string) => Promise<string | null>

interface HookSettings {
  /** null: IPs are where they are. */
  ip_hook: string | null
  ip_hook_timeout: number
}

/** Of what it says on standard error. */
const MOST_CHARACTERS = 300

export function createIpHook(settings: () => HookSettings, nodeId: string): RunIpHook {
  return async (act, ip) => {
    const { ip_hook: program, ip_hook_timeout: timeout } = settings()
    if (program === null) return null
    const problem = await run(program, [act, ip], { PATH: process.env['PATH'], STERNPOST_NODE: nodeId }, timeout)
    return problem === null ? null : `${program} ${act} ${ip} ${problem}`
  }
}

/** What has become another user's, as by sudo, is not ours to kill: it is left to itself. */
function killGroup({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL')
  } catch {
    // The hook has failed all the same.
  }
}

function run(program: string, words: string[], env: NodeJS.ProcessEnv, timeout: number): Promise<string | null> {
  return new Promise((resolve) => {
    // With a group of its own: what it has started is killed with it.
    const child = spawn(program, words, { env, stdio: ['ignore', 'ignore', 'pipe'], detached: true })
    let said = ''
    child.stderr.on('data', (bytes: Buffer) => (said = (said + bytes.toString()).slice(0, MOST_CHARACTERS)))
    const timer = setTimeout(() => {
      end(`took longer than ${timeout} ms`)
      killGroup(child)
    }, timeout)
    const end = (problem: string | null): void => {
      clearTimeout(timer)
      child.stderr.destroy()
      resolve(problem)
    }
    child.on('error', (error) => end(`cannot be run: ${error.message}`))
    child.on('exit', (code, signal) => {
      const words = said.trim()
      end(code === 0 ? null : `ended with ${code ?? signal}${words === '' ? '' : `: ${words}`}`)
    })
  })
}
