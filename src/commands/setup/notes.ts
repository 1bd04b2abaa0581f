/** What `sternpost setup` says, on the screen and in its log, where keys are cut to their last four characters. */
import { writeFileSync } from 'node:fs'
import { errorText } from '../../base/errors.ts'

export interface SetupNotes {
  say(text: string): void
  /** Shown whole, where the screen shows keys, and cut in the log. */
  sayKey(before: string, key: string): void
  /** Writes the log; one that cannot be written is said, and is no failure. */
  close(): void
}

const PRIVATE = 0o600
const SHOWN_CHARACTERS = 4

interface SetupScreen {
  show(text: string): void
  showsKey: boolean
}

export function createSetupNotes(file: string, { show, showsKey }: SetupScreen): SetupNotes {
  const lines: string[] = [new Date().toISOString()]
  return {
    say(text) {
      show(`${text}\n`)
      lines.push(text)
    },
    sayKey(before, key) {
      if (showsKey) show(`${before}${key}\n`)
      lines.push(`${before}…${key.slice(-SHOWN_CHARACTERS)}`)
    },
    close() {
      try {
        writeFileSync(file, `${lines.join('\n')}\n`, { mode: PRIVATE, flag: 'a' })
      } catch (thrown) {
        show(`warning: no log was written: ${errorText(thrown)}\n`)
      }
    },
  }
}
