/**
 * Everything that is wrong with a content and one recipient's variables, found at acceptance so that rendering cannot
 * fail later (http/README.md "Sending" and "Variables"). Returns sentences for the caller, all of them at once; never
 * throws. A content is read once and then judged for each recipient by the values that are given: that costs a batch a
 * look at those, however many placeholders its html has. Sizes are added up before anything is built: a large value
 * used a thousand times must not cost its product in memory or time.
 */
import type { StoredContent, Variables } from '../../mail/message.ts'
import { parseTemplate, type Template, type TemplateKind } from './parse-template.ts'
import { findOpenUrls, forbiddenScheme, type OpenUrl } from './url-schemes.ts'
import { escapedBytes, isUsableValue } from './substitute-variables.ts'

/** http/README.md "Limits". */
const MOST_SUBJECT_CHARACTERS = 998
export const MOST_BODY_BYTES = 5 * 1024 * 1024
/** Of one field; each costs a few hundred bytes and a microsecond wherever the content is read. */
const MOST_PLACEHOLDERS = 10_000
/** Parts of all URLs that begin with a variable, where these differ: each recipient of a batch costs a look at each. */
const MOST_URL_PARTS = 2_000
/** An answer shows 2,000 characters. */
const MOST_VARIABLE_PROBLEMS = 100

type TemplateText = Pick<StoredContent, 'subject' | 'html' | 'text' | 'hasVariables'>
type RawVariables = Readonly<Record<string, unknown>>
type FieldName = 'subject' | 'html' | 'text'

export interface TemplateProblem {
  /** A variable by its name, or a field of the content once its variables are filled in. */
  about: 'variable' | 'field'
  name: string
  text: string
}

/** A content whose placeholders are known. */
export interface ReadTemplates {
  /** What is wrong with the fields whatever the values are. */
  ownProblems(): TemplateProblem[]
  /** An empty list means: this content can be rendered for this recipient. */
  problems(raw: RawVariables): TemplateProblem[]
  /** The values that the templates use, and nothing else; what is null or not given is left out. */
  usable(raw: RawVariables): Variables
}

/** `reserved`: values that rendering adds where none is given, or others of at most their size. */
export function readTemplates(content: TemplateText, reserved: Variables = {}): ReadTemplates {
  const fields = fieldsOf(content)
  const uses = usesOf(fields)
  const needed = [...uses.values()].filter(({ neededIn }) => neededIn.length > 0)
  return {
    ownProblems: () => fields.flatMap(({ name, problem }) => fieldProblem(name, problem)),
    problems(raw) {
      const given = new Map([...givenValues(uses, reserved), ...givenValues(uses, raw)])
      const found = variableProblems(uses, needed, given)
      if (found.length > 0) return found
      const ofUrls = fields.flatMap((field) => urlProblems(field, given))
      if (ofUrls.length > 0) return ofUrls
      return fields.flatMap((field) => fieldProblem(field.name, field.problem ?? renderedProblem(field, given)))
    },
    usable(raw) {
      const usable: Variables = Object.create(null)
      for (const [key, value] of givenValues(uses, raw)) if (isUsableValue(value)) usable[key] = value
      return usable
    },
  }
}

/** A text as a template when substitution is on, else as the one piece of text it is. */
export function templateOf(text: string, kind: TemplateKind, hasVariables: boolean): Template {
  return hasVariables ? parseTemplate(text, kind) : [text]
}

/** What is given of what is used, by name; null stands for "not given". */
type GivenValues = ReadonlyMap<string, unknown>

/** Looks at the values and not at the placeholders, which may be many more. */
function givenValues(uses: ReadonlyMap<string, Use>, raw: RawVariables): GivenValues {
  const given = new Map<string, unknown>()
  for (const key of Object.keys(raw)) {
    const value = raw[key] ?? null
    if (value !== null && uses.has(key)) given.set(key, value)
  }
  return given
}

interface Field {
  name: FieldName
  template: Template
  /** What is wrong with it whatever the values are. */
  problem: string | undefined
  /** With no value given; characters of the subject, else bytes. Only counted where there are places. */
  sizeWithoutValues: number
  /** By variable: at most two, in two and in three braces. */
  places: Map<string, Place[]>
  /** Only of the html. */
  openUrls: readonly OpenUrl[]
}

/** All placeholders of a field that one value fills in the same way. */
interface Place {
  isEscaped: boolean
  count: number
  /** Size of all that stands there when the value is not given. */
  sizeWithout: number
  /** One of them has no fallback. */
  isNeeded: boolean
}

function fieldsOf({ subject, html, text, hasVariables }: TemplateText): Field[] {
  const read = (name: FieldName, source: string | null): Field[] => {
    if (source === null) return []
    const kind = name === 'html' ? 'html' : 'text'
    const template = hasVariables ? parseTemplate(source, kind, MOST_PLACEHOLDERS + 1) : [source]
    const openUrls = name === 'html' ? findOpenUrls(template) : []
    const problem =
      (name === 'subject' ? subjectProblem(source) : sourceProblem(source)) ?? countProblem(template, openUrls)
    return [{ name, template, problem, openUrls, ...placesOf(name, template) }]
  }
  return [...read('subject', subject), ...read('html', html), ...read('text', text)]
}

function placesOf(name: FieldName, template: Template): Pick<Field, 'sizeWithoutValues' | 'places'> {
  const places: Field['places'] = new Map()
  let sizeWithoutValues = 0
  if (template.every((part) => typeof part === 'string')) return { sizeWithoutValues, places }
  for (const part of template) {
    if (typeof part === 'string') {
      sizeWithoutValues += sizeIn(name, part, false)
      continue
    }
    const { key, isEscaped, fallback } = part
    const ofKey = places.get(key) ?? []
    const known = ofKey.find((place) => place.isEscaped === isEscaped)
    const place = known ?? { isEscaped, count: 0, sizeWithout: 0, isNeeded: false }
    if (known === undefined) places.set(key, [...ofKey, place])
    const size = sizeIn(name, fallback ?? '', isEscaped)
    sizeWithoutValues += size
    place.count += 1
    place.sizeWithout += size
    place.isNeeded ||= fallback === null
  }
  return { sizeWithoutValues, places }
}

/** Of the subject in UTF-16 units, of which a character is one or two; of the others in bytes. */
function sizeIn(name: FieldName, text: string, isEscaped: boolean): number {
  if (name === 'subject') return text.length
  return isEscaped ? escapedBytes(text) : Buffer.byteLength(text)
}

/** Where a variable is used, and where it has to be given. */
interface Use {
  key: string
  fields: FieldName[]
  neededIn: FieldName[]
}

function usesOf(fields: readonly Field[]): Map<string, Use> {
  const uses = new Map<string, Use>()
  for (const { name, places } of fields) {
    for (const [key, ofKey] of places) {
      const use = uses.get(key) ?? { key, fields: [], neededIn: [] }
      uses.set(key, use)
      use.fields.push(name)
      if (ofKey.some(({ isNeeded }) => isNeeded)) use.neededIn.push(name)
    }
  }
  return uses
}

function variableProblems(
  uses: ReadonlyMap<string, Use>,
  needed: readonly Use[],
  given: GivenValues,
): TemplateProblem[] {
  const found: TemplateProblem[] = []
  const add = (name: string, fields: readonly FieldName[], what: string): void => {
    if (found.length >= MOST_VARIABLE_PROBLEMS) return
    found.push({ about: 'variable', name, text: `used in ${fields.join(' and ')}, ${what}` })
  }
  for (const { key, neededIn } of needed) if (!given.has(key)) add(key, neededIn, 'not given')
  for (const [key, value] of given) {
    if (isUsableValue(value)) continue
    const kind = Array.isArray(value) ? 'an array' : 'an object'
    add(key, uses.get(key)?.fields ?? [], `must be a string, number or boolean, not ${kind}`)
  }
  return found
}

function urlProblems({ problem, openUrls }: Field, given: GivenValues): TemplateProblem[] {
  const found: TemplateProblem[] = []
  if (problem !== undefined) return found
  for (const url of openUrls) {
    const scheme = forbiddenScheme(url, ({ key, fallback }) => String(given.get(key) ?? fallback ?? ''))
    if (scheme === undefined) continue
    const what = `begins the URL of ${url.attribute} in line ${url.line} of the html with the scheme "${scheme}"`
    found.push({ about: 'variable', name: url.key, text: `${what}, which only the html itself may` })
    if (found.length === MOST_VARIABLE_PROBLEMS) break
  }
  return found
}

function fieldProblem(name: FieldName, problem: string | undefined): TemplateProblem[] {
  return problem === undefined ? [] : [{ about: 'field', name, text: problem }]
}

/** What becomes wrong with a field by the values in it. */
function renderedProblem(field: Field, given: GivenValues): string | undefined {
  if (field.places.size === 0) return undefined
  const size = renderedSize(field, given)
  // Nothing long is built.
  const isLong = size > MOST_SUBJECT_UNITS
  const ofSubject = (): string | undefined => (isLong ? LONG_SUBJECT : subjectProblem(renderedSubject(field, given)))
  const problem = field.name === 'subject' ? ofSubject() : bodyProblem(size)
  return problem === undefined ? undefined : `${problem} once its variables are filled in`
}

/** A character is at most two of UTF-16. */
const MOST_SUBJECT_UNITS = 2 * MOST_SUBJECT_CHARACTERS
const LONG_SUBJECT = `has more than ${MOST_SUBJECT_CHARACTERS} characters`

function subjectProblem(subject: string): string | undefined {
  const isLong = subject.length > MOST_SUBJECT_UNITS || [...subject].length > MOST_SUBJECT_CHARACTERS
  if (isLong) return LONG_SUBJECT
  // Every C0 and C1 control and DEL, but not the tab.
  if (/[^\P{Cc}\t]/u.test(subject)) return 'has a line break or another control character'
  return subject.isWellFormed() ? undefined : 'has an unpaired surrogate'
}

/** A UTF-16 unit is at most three bytes: what is short enough is not counted. */
function sourceProblem(source: string): string | undefined {
  return source.length * 3 <= MOST_BODY_BYTES ? undefined : bodyProblem(Buffer.byteLength(source))
}

function countProblem(template: Template, openUrls: readonly OpenUrl[]): string | undefined {
  const count = template.reduce((sum, part) => sum + Number(typeof part !== 'string'), 0)
  if (count > MOST_PLACEHOLDERS) return `has more than ${MOST_PLACEHOLDERS} placeholders`
  const parts = openUrls.reduce((sum, { beginning }) => sum + beginning.length, 0)
  return parts > MOST_URL_PARTS ? 'has too many different URLs that begin with a variable' : undefined
}

function bodyProblem(bytes: number): string | undefined {
  return bytes > MOST_BODY_BYTES ? `has ${bytes} bytes, at most ${MOST_BODY_BYTES} are allowed` : undefined
}

function renderedSubject({ template }: Field, given: GivenValues): string {
  return template
    .map((part) => (typeof part === 'string' ? part : String(given.get(part.key) ?? part.fallback ?? '')))
    .join('')
}

function renderedSize({ name, sizeWithoutValues, places }: Field, given: GivenValues): number {
  let size = sizeWithoutValues
  for (const [key, value] of given) {
    for (const { isEscaped, count, sizeWithout } of places.get(key) ?? []) {
      size += count * sizeIn(name, String(value), isEscaped) - sizeWithout
    }
  }
  return size
}
