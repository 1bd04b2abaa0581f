/**
 * Lines that make a slow regular expression show itself: as long as a reply may be, of what the expression looks for,
 * and with an end that it does not expect. Pure.
 *
 * A repetition of a choice can take exponential time behind any beginning, so it is tried behind many beginnings of the
 * example; many repetitions in a row take polynomial time, for which a few beginnings are enough.
 */
import { MOST_REPLY_CHARACTERS } from '../../mail/reply/smtp-reply.ts'

export interface PatternShape {
  /** A choice, or something that may be left out, is repeated. */
  repeatsChoice: boolean
  /** Repetitions, each of a number that is left open. */
  repetitions: number
}

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

export function hostileLines(pattern: string, example: string, { repeatsChoice, repetitions }: PatternShape): string[] {
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
