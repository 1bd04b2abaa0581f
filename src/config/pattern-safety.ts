/**
 * Whether a regular expression of a rule is safe to run on every reply of every server.
 *
 * Refused are what cannot be compiled, backreferences, and a repetition inside a repetition (both can take
 * exponential time), and what is slow on hostile lines. The trial runs in `node:vm`, because only there can a running
 * expression be stopped.
 */
import { createContext, Script } from 'node:vm'
import type { Context } from 'node:vm'
import { errorText } from '../base/errors.ts'
import { MOST_REPLY_CHARACTERS } from '../mail/smtp-reply.ts'

/** operations.md 4.4. Counted in time of the processor, so that a busy machine refuses no good rule. */
const MOST_CPU_MILLISECONDS = 50
/** An expression that still runs is stopped. */
const STOP_AFTER_MILLISECONDS = 500
/** Other threads count too, and the first run compiles; an expression that is slow is so every time. */
const TRIALS = 3
const MOST_WORDS = 8
/** Of a millisecond, the unit of process.cpuUsage. */
const MICROSECONDS = 1_000

/** What is wrong with the text of an expression, or undefined. */
export function patternProblem(pattern: string): string | undefined {
  try {
    compilePattern(pattern)
  } catch (thrown) {
    // The engine's sentence names the expression and the reason.
    return errorText(thrown)
  }
  return dangerIn(pattern)
}

/** With the flags that all rules are run with. */
export function compilePattern(pattern: string): RegExp {
  return new RegExp(pattern, 'iu')
}

// The start of a group with its kind, a class, an escape with or without braces, or a single character.
const ATOM = /^(?:\((?:\?(?:[:=!]|<[=!]|<[^>]*>|[a-z-]+:))?|\[(?:\\.|[^\]\\])*\]|\\(?:[pPu]\{[^}]*\}|c?.)|[^])/

/** Reads an expression that compiles, atom by atom. */
function dangerIn(pattern: string): string | undefined {
  // For each open group: whether something in it repeats.
  const open: boolean[] = [false]
  let position = 0
  while (position < pattern.length) {
    const rest = pattern.slice(position)
    // A reference to an earlier group, by number or by name.
    if (/^\\(?:[1-9]|k<)/.test(rest)) return 'a backreference is not taken'
    position += ATOM.exec(rest)?.[0].length ?? 1
    if (rest.startsWith('(')) {
      open.push(false)
      continue
    }
    const isInnerRepeated = rest.startsWith(')') ? (open.pop() ?? false) : false
    const quantifier = quantifierAt(pattern.slice(position))
    position += quantifier.length
    if (isInnerRepeated && quantifier.repeats) return 'a repetition inside a repetition is not taken'
    if (isInnerRepeated || quantifier.repeats) open[open.length - 1] = true
  }
  return undefined
}

function quantifierAt(rest: string): { length: number; repeats: boolean } {
  // `*`, `+`, `?`, `{2}`, `{2,}` or `{2,5}`, and the mark of a lazy one.
  const match = /^(?:[*+?]|\{(\d+)(,(\d*))?\})\??/.exec(rest)
  if (match === null) return { length: 0, repeats: false }
  const [whole, least, range, most] = match
  // An exact count leaves nothing to try out.
  const repeats = least === undefined ? !whole.startsWith('?') : range !== undefined && most !== '1'
  return { length: whole.length, repeats }
}

/** Runs expressions on hostile lines; one of these serves all rules of a file. */
export function createTrial(): (pattern: string, example: string) => boolean {
  const script = new Script('for (const line of lines) expression.test(line)')
  const context = createContext({})
  return (pattern, example) => {
    Object.assign(context, { expression: compilePattern(pattern), lines: hostileLines(pattern, example) })
    for (let trial = 0; trial < TRIALS; trial++) if (isInTime(script, context)) return true
    return false
  }
}

function isInTime(script: Script, context: Context): boolean {
  const before = process.cpuUsage()
  try {
    script.runInContext(context, { timeout: STOP_AFTER_MILLISECONDS })
  } catch {
    // Nothing in the script throws but the end of its time.
    return false
  }
  const { user, system } = process.cpuUsage(before)
  return (user + system) / MICROSECONDS <= MOST_CPU_MILLISECONDS
}

/** Lines as long as a reply may be, of what makes an expression start over and over again. */
function hostileLines(pattern: string, example: string): string[] {
  // Words that the expression looks for.
  const words = [...new Set(pattern.match(/[a-z]{3,}/gi) ?? [])].slice(0, MOST_WORDS)
  const texts = [example, words.join(' '), ...words, '1.1.1.1'].map((text) => `${text} `)
  return ['a', '1', ' ', '-', '.', '[', ...texts].map((piece) =>
    piece.repeat(Math.ceil(MOST_REPLY_CHARACTERS / piece.length)).slice(0, MOST_REPLY_CHARACTERS))
}
