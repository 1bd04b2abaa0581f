/**
 * Collects what is wrong with the fields of one request: `path: problem`, each path named once. A later finding about a
 * field that the door named, or about a part of it, would only repeat it and is left out. Never throws.
 */
import { ServiceError } from '../../base/errors.ts'

export type FieldProblems = ReturnType<typeof createFieldProblems>

// `to`, or an entry of `cc` or `bcc`: the paths whose problems are answered as invalid_recipient.
const RECIPIENT = /^(?:to|b?cc\[\d+\]):/
/** An answer shows 2,000 characters. */
const MOST_PROBLEMS = 200
const MOST_SHOWN_CHARACTERS = 80

export function createFieldProblems(wrongTypes: readonly string[]) {
  const found = new Set(wrongTypes)
  const namedByDoor = wrongTypes.map((problem) => problem.slice(0, problem.indexOf(':')))
  const isNamed = (path: string): boolean => namedByDoor.some((named) => path === named || isPartOf(path, named))
  return {
    add(path: string, text: string) {
      if (found.size < MOST_PROBLEMS && !isNamed(path)) found.add(`${path}: ${text}`)
    },
    /** Whether the door named this field, or what it is part of. */
    isNamed,
    /** All problems; those of the recipients first and apart. */
    recipient: () => [...found].filter((problem) => RECIPIENT.test(problem)),
    fields: () => [...found].filter((problem) => !RECIPIENT.test(problem)),
  }
}

/** ServiceError `invalid_request` with every problem, if there is one. */
export function refuseProblems(problems: FieldProblems): void {
  const found = problems.fields()
  if (found.length > 0) throw new ServiceError('invalid_request', found.join('; '))
}

/** A name or value of the caller as it stands in a problem: the start of a long one. */
export function shown(text: string): string {
  return text.length > MOST_SHOWN_CHARACTERS ? `${text.slice(0, MOST_SHOWN_CHARACTERS)}…` : text
}

/** http/README.md "Conventions": no U+0000 and no half of a pair in any string. */
export function checkText(path: string, text: string, problems: FieldProblems): void {
  if (text.includes('\0')) problems.add(path, 'has the character U+0000')
  if (!text.isWellFormed()) problems.add(path, 'has an unpaired surrogate')
}

function isPartOf(path: string, whole: string): boolean {
  return path.startsWith(`${whole}.`) || path.startsWith(`${whole}[`)
}
