/**
 * The customer's own header fields (http/README.md "Sending"): names that are theirs to give, values that stay inside
 * their line. A value may be text of any language: the renderer encodes it. Never throws. RFC 5322 §2.2.
 */
import { headerRule } from '../../mail/header-rules.ts'
import { checkText, shown, type FieldProblems } from './field-problems.ts'

const MOST_HEADERS = 30
const MOST_VALUE_CHARACTERS = 998

/** Field of the request -> the header fields that are written from it, in lower case. */
const WRITTEN_FROM: Readonly<Record<string, readonly string[]>> = {
  from: ['from'],
  to: ['to'],
  cc: ['cc'],
  bcc: ['bcc'],
  subject: ['subject'],
  reply_to: ['reply-to'],
  'unsubscribe.url': ['list-unsubscribe', 'list-unsubscribe-post'],
}

// Letters, digits and hyphens.
const NAME = /^[A-Za-z0-9-]{1,76}$/
// Every control character but the tab.
const CONTROL = /[^\P{Cc}\t]/u

/** `ownNames`: further names that this server writes itself. */
export function checkHeaders(
  given: Record<string, unknown>,
  ownNames: readonly string[],
  problems: FieldProblems,
): [name: string, value: string][] {
  const entries = Object.entries(given)
  if (entries.length > MOST_HEADERS) {
    problems.add('headers', `${entries.length} fields; at most ${MOST_HEADERS} are allowed`)
    return []
  }
  const known = new Set<string>()
  return entries.flatMap(([name, value]): [string, string][] => {
    const path = `headers.${shown(name)}`
    const nameProblem = problemOfName(name, ownNames)
    if (nameProblem !== undefined) problems.add(path, nameProblem)
    // RFC 5322 §3.6: most fields may stand there once, and servers refuse mail that has two of them.
    if (known.has(name.toLowerCase())) problems.add(path, 'is given twice: capitals make no other name')
    known.add(name.toLowerCase())
    if (typeof value !== 'string') {
      problems.add(path, 'must be a string')
      return []
    }
    checkValue(path, value, problems)
    return [[name, value]]
  })
}

function problemOfName(name: string, ownNames: readonly string[]): string | undefined {
  if (!NAME.test(name)) return 'is no header name: 1 to 76 letters, digits and hyphens'
  const lower = name.toLowerCase()
  const isDenied = headerRule(lower) !== undefined || ownNames.some((own) => own.toLowerCase() === lower)
  if (!isDenied) return undefined
  const field = Object.keys(WRITTEN_FROM).find((key) => WRITTEN_FROM[key]?.includes(lower))
  return `may not be set by a request${field === undefined ? '' : `: it is written from the field ${field}`}`
}

function checkValue(path: string, value: string, problems: FieldProblems): void {
  if (CONTROL.test(value)) problems.add(path, 'has a line break or another control character')
  if ([...value].length > MOST_VALUE_CHARACTERS) problems.add(path, `has more than ${MOST_VALUE_CHARACTERS} characters`)
  checkText(path, value, problems)
}
