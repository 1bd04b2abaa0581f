/**
 * Everything that is wrong with a content and one recipient's variables, found at acceptance so that rendering cannot
 * fail later (contract.md 4.1 and 4.4). Returns sentences for the caller, all of them at once; never throws.
 *
 * Sizes are added up before anything is built: a large value used a thousand times must not cost its product in memory.
 */
import type { StoredContent, Variables } from '../mail/message.ts'
import { parseTemplate } from './parse-template.ts'
import type { Placeholder, Template, TemplateKind } from './parse-template.ts'
import { escapeHtml, isUsableValue, substitute, valueOf } from './substitute-variables.ts'

/** contract.md 16. */
export const MOST_SUBJECT_CHARACTERS = 998
export const MOST_BODY_BYTES = 5 * 1024 * 1024

type TemplateText = Pick<StoredContent, 'subject' | 'html' | 'text' | 'hasVariables'>
type RawVariables = Readonly<Record<string, unknown>>

interface Field {
  name: 'subject' | 'html' | 'text'
  template: Template
}

/** An empty list means: this content can be rendered for this recipient. */
export function templateProblems(content: TemplateText, raw: RawVariables): string[] {
  const fields = fieldsOf(content)
  const problems = variableProblems(fields, raw)
  if (problems.length > 0) return problems
  const suffix = content.hasVariables ? ' once its variables are filled in' : ''
  return fields.flatMap((field) => {
    const problem = field.name === 'subject' ? subjectProblem(field.template, raw) : bodyProblem(field.template, raw)
    return problem === undefined ? [] : [`${field.name}: ${problem}${suffix}`]
  })
}

/** The values that the templates use, and nothing else; what is null or not given is left out. */
export function usableVariables(content: TemplateText, raw: RawVariables): Variables {
  const usable: Variables = Object.create(null)
  for (const { placeholder } of placeholdersOf(fieldsOf(content))) {
    const value = Object.hasOwn(raw, placeholder.key) ? raw[placeholder.key] : undefined
    if (isUsableValue(value)) usable[placeholder.key] = value
  }
  return usable
}

/** A text as a template when substitution is on, else as the one piece of text it is. */
export function templateOf(text: string, kind: TemplateKind, hasVariables: boolean): Template {
  return hasVariables ? parseTemplate(text, kind) : [text]
}

function fieldsOf(content: TemplateText): Field[] {
  const { subject, html, text, hasVariables } = content
  const fields: Field[] = [{ name: 'subject', template: templateOf(subject, 'text', hasVariables) }]
  if (html !== null) fields.push({ name: 'html', template: templateOf(html, 'html', hasVariables) })
  if (text !== null) fields.push({ name: 'text', template: templateOf(text, 'text', hasVariables) })
  return fields
}

interface Use {
  placeholder: Placeholder
  field: Field['name']
}

function placeholdersOf(fields: readonly Field[]): Use[] {
  return fields.flatMap(({ name, template }) =>
    template.flatMap((part) => (typeof part === 'string' ? [] : [{ placeholder: part, field: name }])))
}

/** One problem for each variable, naming all fields it is used in. */
function variableProblems(fields: readonly Field[], raw: RawVariables): string[] {
  const found = new Map<string, { fields: Set<string>; problem: string }>()
  for (const { placeholder, field } of placeholdersOf(fields)) {
    const problem = variableProblem(placeholder, raw)
    if (problem === undefined) continue
    const known = found.get(placeholder.key)
    if (known === undefined) found.set(placeholder.key, { fields: new Set([field]), problem })
    else known.fields.add(field)
  }
  return [...found].map(([key, use]) => `variables.${key}: used in ${[...use.fields].join(' and ')}, ${use.problem}`)
}

function variableProblem(placeholder: Placeholder, raw: RawVariables): string | undefined {
  const value = Object.hasOwn(raw, placeholder.key) ? raw[placeholder.key] : undefined
  if (value === undefined || value === null) return placeholder.fallback === null ? 'not given' : undefined
  if (isUsableValue(value)) return undefined
  return `must be a string, number or boolean, not ${Array.isArray(value) ? 'an array' : 'an object'}`
}

function subjectProblem(template: Template, raw: RawVariables): string | undefined {
  const tooLong = `has more than ${MOST_SUBJECT_CHARACTERS} characters`
  // A character is at most two UTF-16 units, so nothing long is built.
  if (renderedSize(template, raw, (text) => text.length) > 2 * MOST_SUBJECT_CHARACTERS) return tooLong
  const subject = substitute(template, ownValues(raw))
  if ([...subject].length > MOST_SUBJECT_CHARACTERS) return tooLong
  // Every C0 and C1 control and DEL, but not the tab.
  if (/[^\P{Cc}\t]/u.test(subject)) return 'has a line break or another control character'
  return subject.isWellFormed() ? undefined : 'has an unpaired surrogate'
}

function bodyProblem(template: Template, raw: RawVariables): string | undefined {
  const bytes = renderedSize(template, raw, (text) => Buffer.byteLength(text))
  return bytes > MOST_BODY_BYTES ? `has ${bytes} bytes, at most ${MOST_BODY_BYTES} are allowed` : undefined
}

/** The size of the rendered text by a measure that adds up; each key is measured once. */
function renderedSize(template: Template, raw: RawVariables, sizeOf: (text: string) => number): number {
  const known = new Map<string, number>()
  let size = 0
  for (const part of template) {
    if (typeof part === 'string') {
      size += sizeOf(part)
      continue
    }
    const name = `${part.isEscaped ? 'html' : 'text'} ${part.key}|${part.fallback ?? ''}`
    const value = known.get(name) ?? sizeOf(renderedValue(part, raw))
    known.set(name, value)
    size += value
  }
  return size
}

function renderedValue(placeholder: Placeholder, raw: RawVariables): string {
  const value = valueOf(placeholder, raw) ?? ''
  return placeholder.isEscaped ? escapeHtml(value) : value
}

function ownValues(raw: RawVariables): Variables {
  const values: Variables = Object.create(null)
  for (const [key, value] of Object.entries(raw)) if (isUsableValue(value)) values[key] = value
  return values
}
