/**
 * Whether a regular expression of a rule is safe to run on every reply of every server. Refused are what cannot be
 * compiled, backreferences, a repetition inside a repetition (both can take exponential time), and what is slow on
 * hostile lines. The trial runs in `node:vm`, because only there can a running expression be stopped.
 */
import { createContext, Script, type Context } from 'node:vm'
import { errorText } from '../../base/errors.ts'
import { recentEntries } from '../../base/recent-entries.ts'
import { MOST_REPLY_CHARACTERS } from '../../mail/reply/smtp-reply.ts'

/** What classes such as `\d`, `\w`, `\s` and `.` take. */
const COMMON = ['a', '1', ' ', '-', '.', '[']
/** In no expression for replies: the match fails there. */
const UNEXPECTED_END = '\u00a7'
const MOST_CHARACTERS = 24
const MOST_WORDS = 8
/** Enough for exponential time. */
const SHORT_LINE = 64
const MOST_BEGINNINGS = 12
/** A single repetition of one thing is never slow. */
const SEVERAL_REPETITIONS = 2
/** So many in a row are worth the long lines behind several beginnings. */
const MANY_REPETITIONS = 3
const FEW_BEGINNINGS = 4
/** config/README.md "providers.yaml". Counted in time of the processor, so that a busy machine refuses no good rule. */
const MOST_CPU_MILLISECONDS = 50
/** An expression that still runs is stopped. */
const STOP_AFTER_MILLISECONDS = 500
/** Other threads count too, and the first run compiles; an expression that is slow is so every time. */
const TRIALS = 3
/** Of a millisecond, the unit of process.cpuUsage. */
const MICROSECONDS = 1_000
/** More rules than a configuration has. */
const MOST_REMEMBERED = 2_000
/** Expressions and examples that were in time: a reload tries only what is new, and does not hold up the server. */
const inTime = recentEntries<string, true>(MOST_REMEMBERED)

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

interface PatternShape {
  danger: string | undefined
  /** A choice, or something that may be left out, is repeated. */
  repeatsChoice: boolean
  /** Repetitions, each of a number that is left open. */
  repetitions: number
}

/** Reads an expression that compiles, atom by atom. */
function readShape(pattern: string): PatternShape {
  // What repeats, and where there are several ways through: `|`, or something that may be left out.
  const whole = { repeats: false, isChoice: false }
  // The groups that are open, with the whole expression around them.
  const open = [whole]
  const shape: PatternShape = { danger: undefined, repeatsChoice: false, repetitions: 0 }
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

function quantifierAt(rest: string) {
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
    const tried = JSON.stringify([pattern, example])
    if (inTime.has(tried)) return true
    const lines = hostileLines(pattern, example, readShape(pattern))
    Object.assign(context, { expression: compilePattern(pattern), lines })
    const isFast = Array.from({ length: TRIALS }).some(() => isInTime(script, context))
    if (isFast) inTime.set(tried, true)
    return isFast
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

/**
 * Lines that make a slow expression show itself: as long as a reply may be, of what it looks for, and with an end that
 * it does not expect. A repetition of a choice can take exponential time behind any beginning, so it is tried behind
 * many beginnings of the example; many repetitions in a row take polynomial time, for which a few are enough.
 */
function hostileLines(pattern: string, example: string, { repeatsChoice, repetitions }: PatternShape): string[] {
  const words = wordsOf(pattern)
  const characters = repeatsChoice || repetitions >= SEVERAL_REPETITIONS ? charactersOf(pattern) : []
  const texts = [example, words.join(' '), ...words, '1.1.1.1'].map((text) => `${text} `)
  const pieces = [...new Set([...COMMON, ...characters, ...words, ...texts])]
  const lines = pieces.map((piece) => pumped('', piece, MOST_REPLY_CHARACTERS))
  if (repeatsChoice) {
    // Two alternatives may together be a third one.
    const pairs = words.flatMap((left) => words.map((right) => left + right))
    const short = [...new Set([...characters, ...words, ...pairs])]
    lines.push(...behind(beginningsOf(example, MOST_BEGINNINGS), short, SHORT_LINE))
  }
  if (repetitions >= MANY_REPETITIONS) {
    lines.push(...behind(beginningsOf(example, FEW_BEGINNINGS), [...characters, 'a', '1'], MOST_REPLY_CHARACTERS))
  }
  return lines
}

function behind(beginnings: readonly string[], pieces: readonly string[], length: number): string[] {
  return beginnings.flatMap((beginning) => pieces.map((piece) => pumped(beginning, piece, beginning.length + length)))
}

function pumped(beginning: string, piece: string, length: number): string {
  const line = beginning + piece.repeat(Math.ceil(Math.max(0, length - beginning.length) / piece.length))
  return line.slice(0, Math.min(length, MOST_REPLY_CHARACTERS) - 1) + UNEXPECTED_END
}

/** Runs of letters and digits, those that a repeated choice may be made of too. */
function wordsOf(pattern: string): string[] {
  return [...new Set(withoutEscapes(pattern).match(/[\p{L}\d]{2,}/giu) ?? [])].slice(0, MOST_WORDS)
}

/** Each one that the expression names, once. */
function charactersOf(pattern: string): string[] {
  const found =
    withoutEscapes(pattern)
      .toLowerCase()
      .match(/[^()[\]{}|?*+^$\\]/gu) ?? []
  return [...new Set(found)].slice(0, MOST_CHARACTERS)
}

/** `\d`, `\p{L}` and the like name no character; `\.` names one, which is among the common ones or nothing to pump. */
function withoutEscapes(pattern: string): string {
  return pattern.replace(/\\[pPu]\{[^}]*\}|\\[^]/g, '|')
}

function beginningsOf(example: string, most: number): string[] {
  const step = Math.max(1, Math.ceil(example.length / most))
  const count = Math.floor(example.length / step)
  return Array.from({ length: count + 1 }, (_, index) => example.slice(0, index * step))
}
