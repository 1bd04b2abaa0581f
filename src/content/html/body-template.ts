/**
 * The template of a body part for many messages: lines that are the same in all of them are encoded once. The text that
 * comes out is the same either way. Filling in throws only for a missing value, which acceptance has ruled out.
 */
import type { Variables } from '../../mail/message.ts'
import { fixedLines, type BodyText, type FixedLines } from '../mime/body-text.ts'
import type { Placeholder } from '../template/parse-template.ts'
import { substitutePlaceholder } from '../template/substitute-variables.ts'

export type BodyTemplate = readonly (string | Placeholder | FixedLines)[]

/** Fewer characters are encoded as quickly as they are joined. */
const FEWEST_CHARACTERS = 200
/**
 * Longer texts stay apart: joined, all of them would be copied once more. No character comes to stand in two of them,
 * since acceptance refuses what ends within one (http/README.md "Conventions").
 */
const MOST_JOINED_CHARACTERS = 500

/** With all whole lines of its texts encoded: worth it where more than one message is made of it. */
export function withFixedLines(template: BodyTemplate): BodyTemplate {
  return template.flatMap((part) => (typeof part === 'string' ? splitLines(part) : [part]))
}

/** What stands before and behind the text is not known: its first and last line may not be whole. */
function splitLines(text: string): BodyTemplate {
  const start = text.indexOf('\n') + 1
  const end = text.lastIndexOf('\n') + 1
  return end - start < FEWEST_CHARACTERS
    ? [text]
    : [text.slice(0, start), fixedLines(text.slice(start, end)), text.slice(end)]
}

type BodyWriter = ReturnType<typeof createBodyWriter>

export function createBodyWriter() {
  const body: (string | FixedLines)[] = []
  let text = ''
  const add = (more: string): void => {
    const isJoined = text.length + more.length <= MOST_JOINED_CHARACTERS
    if (!isJoined) body.push(text)
    text = isJoined ? text + more : more
  }
  return {
    add,
    addLines(lines: FixedLines): void {
      body.push(text, lines)
      text = ''
    },
    result: (): BodyText => [...body, text],
  }
}

/** No part of the writer: the optimized code of a function that is made anew for each message is lost again and again. */
export function fillInto(writer: BodyWriter, template: BodyTemplate, variables: Variables): void {
  for (const part of template) {
    if (typeof part === 'string') writer.add(part)
    else if ('encoded' in part) writer.addLines(part)
    else writer.add(substitutePlaceholder(part, variables))
  }
}

export function fillBody(template: BodyTemplate, variables: Variables): BodyText {
  const writer = createBodyWriter()
  fillInto(writer, template, variables)
  return writer.result()
}
