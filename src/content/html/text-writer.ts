/**
 * Collects words, and the spaces and line ends between them, so that white space never doubles and no line ends with
 * it. Nothing is written before the first word or behind the last one. Never throws; time is linear.
 */
interface TextWriter {
  /** Runs of white space count as one space. */
  text(text: string): void
  /** White space as it is. */
  preformatted(text: string): void
  space(): void
  /** One line end more, two at most. */
  breakLine(): void
  /** At least so many line ends before the next word. */
  breakLines(count: number): void
  /** A hyphen before the next word, wherever that comes. */
  startItem(): void
  wordCount(): number
  /** The target behind its words; alone where there are none, and left out where the words are the target. */
  link(target: string, firstWord: number): void
  result(): string
}

const MOST_LINE_ENDS = 2

export function createTextWriter(): TextWriter {
  const pieces: string[] = []
  let words = 0
  let lineEnds = 0
  let isSpaceDue = false
  let isItemDue = false

  const write = (word: string): void => {
    if (pieces.length > 0 && lineEnds > 0) pieces.push('\n'.repeat(lineEnds))
    else if (pieces.length > 0 && isSpaceDue) pieces.push(' ')
    if (isItemDue) pieces.push('- ')
    pieces.push(word)
    words++
    lineEnds = 0
    isSpaceDue = false
    isItemDue = false
  }
  return {
    text(text) {
      // HTML white space or a word; the no-break space belongs to words.
      for (const [part] of text.matchAll(/[ \t\r\n\f]+|[^ \t\r\n\f]+/g)) {
        if (' \t\r\n\f'.includes(part.charAt(0))) isSpaceDue = true
        else write(part)
      }
    },
    preformatted(text) {
      if (text !== '') write(text)
    },
    space() {
      isSpaceDue = true
    },
    breakLine() {
      lineEnds = Math.min(lineEnds + 1, MOST_LINE_ENDS)
    },
    breakLines(count) {
      // The first block of a list item stays behind its hyphen.
      if (!isItemDue) lineEnds = Math.max(lineEnds, count)
    },
    startItem() {
      isItemDue = true
    },
    wordCount: () => words,
    link(target, firstWord) {
      const isTargetShown = words === firstWord + 1 && pieces.at(-1) === target
      if (isTargetShown) return
      const hasWords = words > firstWord
      if (hasWords) isSpaceDue = true
      write(hasWords ? `[${target}]` : target)
    },
    result: () => pieces.join('').trim(),
  }
}
