/**
 * Collects what is wrong with the fields of one request: `path: problem`, each path named once.
 *
 * What the door found about a field's type comes first; a later finding about the same field, or about a part of it,
 * would only repeat it and is left out. Never throws.
 */
export interface FieldProblems {
  add(path: string, text: string): void
  /** Whether the door named this field, or what it is part of. */
  isNamed(path: string): boolean
  /** All problems; those of the recipient first and apart. */
  recipient(): string[]
  fields(): string[]
}

const RECIPIENT_FIELD = 'to'

export function createFieldProblems(wrongTypes: readonly string[]): FieldProblems {
  const found = new Set(wrongTypes)
  const namedByDoor = wrongTypes.map((problem) => problem.slice(0, problem.indexOf(':')))
  const isNamed = (path: string): boolean => namedByDoor.some((named) => path === named || isPartOf(path, named))
  const isRecipient = (problem: string): boolean => problem.startsWith(`${RECIPIENT_FIELD}:`)
  return {
    add(path, text) {
      if (!isNamed(path)) found.add(`${path}: ${text}`)
    },
    isNamed,
    recipient: () => [...found].filter(isRecipient),
    fields: () => [...found].filter((problem) => !isRecipient(problem)),
  }
}

function isPartOf(path: string, whole: string): boolean {
  return path.startsWith(`${whole}.`) || path.startsWith(`${whole}[`)
}
