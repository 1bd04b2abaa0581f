/**
 * A process that runs `posthorn` commands one after another as they come by message, and answers with what each one
 * printed and ended with: starting Node anew for each of dozens of commands would take most of a test's time.
 */
import { EXIT } from '../../src/base/errors.ts'
import { runCommandLine } from '../../src/commands/command-line.ts'

export interface Ended {
  code: number
  stdout: string
  stderr: string
}

const refuse = async (): Promise<never> => {
  throw new Error('no server is started here')
}

async function run(words: string[]): Promise<Ended> {
  const printed = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) {
    process[name].write = (text: string | Uint8Array): boolean => {
      printed[name] += String(text)
      return true
    }
  }
  process.exitCode = EXIT.done
  const code = await runCommandLine(words, '0.0.0', { serve: refuse, sandbox: refuse })
  process.exitCode = EXIT.done
  return { code, ...printed }
}

let last: Promise<unknown> = Promise.resolve()

process.on('message', ({ id, words }: { id: number; words: string[] }) => {
  last = last.then(async () => process.send?.({ id, ended: await run(words) }))
})
