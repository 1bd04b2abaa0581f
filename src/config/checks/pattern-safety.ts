/**
 * Whether a regular expression of a rule is safe to run on every reply of every server.
 *
 * Refused are what cannot be compiled, backreferences, and a repetition inside a repetition (both can take exponential
 * time), and what is slow on hostile lines. The trial runs in `node:vm`, because only there can a running expression be
 * stopped.
 */
import { createContext, Script, type Context } from 'node:vm'
import { errorText } from '../../base/errors.ts'
import { hostileLines, type PatternShape } from './hostile-lines.ts'

/** config/README.md "providers.yaml". Counted in time of the processor, so that a busy machine refuses no good rule. */
const MOST_CPU_MILLISECONDS = 50
/** An expression that still runs is stopped. */
const STOP_AFTER_MILLISECONDS = 500
/** Other threads count too, and the first run compiles; an expression that is slow is so every time. */
const TRIALS = 3
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
  return readShape(pattern).danger
}

/** With the flags that all rules are run with. */
export function compilePattern(pattern: string): RegExp {
  return new RegExp(pattern, 'iu')
}

// The start of a group with its kind, a class, an escape with or without braces, or a single character.
const ATOM = /^(?:\((?:\?(?:[:=!]|<[=!]|<[^>]*>|[a-z-]+:))?|\[(?:\\.|[^\]\\])*\]|\\(?:[pPu]\{[^}]*\}|c?.)|[^])/

interface Group {
  /** Something in it repeats. */
  repeats: boolean
  /** There are several ways through it: `|`, or something that may be left out. */
  isChoice: boolean
}

interface ReadShape extends PatternShape {
  danger: string | undefined
}

/** Reads an expression that compiles, atom by atom. */
function readShape(pattern: string): ReadShape {
  const whole: Group = { repeats: false, isChoice: false }
  // The groups that are open, with the whole expression around them.
  const open: Group[] = [whole]
  const shape: ReadShape = { danger: undefined, repeatsChoice: false, repetitions: 0 }
  let position = 0
  while (position < pattern.length) {
    const rest = pattern.slice(position)
    // A reference to an earlier group, by number or by name.
    if (/^\\(?:[1-9]|k<)/.test(rest)) return { ...shape, danger: 'a backreference is not taken' }
    position += ATOM.exec(rest)?.[0].length ?? 1
    if (rest.startsWith('(')) {
      open.push({ repeats: false, isChoice: false })
      continue
    }
    const inner = rest.startsWith(')') ? open.pop() : undefined
    const quantifier = quantifierAt(pattern.slice(position))
    position += quantifier.length
    if (inner?.repeats === true && quantifier.repeats) {
      return { ...shape, danger: 'a repetition inside a repetition is not taken' }
    }
    if (inner?.isChoice === true && quantifier.repeats) shape.repeatsChoice = true
    if (quantifier.repeats) shape.repetitions++
    const around = open.at(-1) ?? whole
    around.repeats ||= inner?.repeats === true || quantifier.repeats
    around.isChoice ||= rest.startsWith('|') || inner?.isChoice === true || quantifier.isOptional
  }
  return shape
}

interface Quantifier {
  length: number
  repeats: boolean
  /** It may be there once, or not. */
  isOptional: boolean
}

function quantifierAt(rest: string): Quantifier {
  // `*`, `+`, `?`, `{2}`, `{2,}` or `{2,5}`, and the mark of a lazy one.
  const match = /^(?:[*+?]|\{(\d+)(,(\d*))?\})\??/.exec(rest)
  if (match === null) return { length: 0, repeats: false, isOptional: false }
  const [whole, least, range, most] = match
  const isOptional = least === undefined ? whole.startsWith('?') : range !== undefined && most === '1'
  // An exact count leaves nothing to try out.
  const repeats = !isOptional && (least === undefined || range !== undefined)
  return { length: whole.length, repeats, isOptional }
}

/** Runs expressions on hostile lines; one of these serves all rules of a file. */
export function createTrial(): (pattern: string, example: string) => boolean {
  const script = new Script('for (const line of lines) expression.test(line)')
  const context = createContext({})
  return (pattern, example) => {
    const lines = hostileLines(pattern, example, readShape(pattern))
    Object.assign(context, { expression: compilePattern(pattern), lines })
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
