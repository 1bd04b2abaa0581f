/**
 * A process that runs `sternpost` commands one after another as they come by message, and answers with what each one
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

interface Asked {
  id: number
  words: string[]
  /** Variables that are set for this command alone. */
  environment: Record<string, string>
}

async function run({ words, environment }: Asked): Promise<Ended> {
  const before = { ...process.env }
  Object.assign(process.env, environment)
  const printed = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) {
    process[name].write = (text: string | Uint8Array): boolean => {
      printed[name] += String(text)
      return true
    }
  }
  process.exitCode = EXIT.done
  const code = await runCommandLine(words, '0.0.0', refuse)
  process.exitCode = EXIT.done
  for (const name of Object.keys(environment)) {
    if (before[name] === undefined) delete process.env[name]
    else process.env[name] = before[name]
  }
  return { code, ...printed }
}

let last: Promise<unknown> = Promise.resolve()

process.on('message', (asked: Asked) => {
  last = last.then(async () => process.send?.({ id: asked.id, ended: await run(asked) }))
})
