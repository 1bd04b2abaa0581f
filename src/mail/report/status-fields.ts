/**
 * Groups of `Name: value` lines, as delivery status and feedback reports hold them (RFC 3464 §2.1, RFC 5965 §3).
 *
 * A line of white space ends a group; folded values are joined, also where the fold lost its white space. Linear.
 */

export type FieldGroup = Map<string, string[]>

// A field name as these reports use them, then its value.
const FIELD = /^([A-Za-z][A-Za-z0-9-]{1,60})[ \t]?:[ \t]?(.*)$/
const MOST_VALUE_CHARACTERS = 4_096
const MOST_FIELDS = 5_000

/** Groups in their order; names in lower case, every value of a name that comes more than once. */
export function readFieldGroups(text: string): FieldGroup[] {
  const groups: FieldGroup[] = []
  let group: FieldGroup | undefined
  let values: string[] | undefined
  let fields = 0
  for (const line of text.split('\n')) {
    const isFolded = line.startsWith(' ') || line.startsWith('\t')
    const field = isFolded ? null : FIELD.exec(line.slice(0, MOST_VALUE_CHARACTERS))
    if (line.trim() === '') {
      group = undefined
      values = undefined
    } else if (field === null) {
      appendToLast(values, line)
    } else if (fields < MOST_FIELDS) {
      const [, name = '', value = ''] = field
      const key = name.toLowerCase()
      if (group === undefined || startsGroup(group, key)) groups.push((group = new Map()))
      values = group.get(key) ?? []
      values.push(value.trim())
      group.set(key, values)
      fields++
    }
  }
  return groups
}

/** First value of a field, or an empty text. */
export function fieldOf(group: FieldGroup, name: string): string {
  return group.get(name)?.[0] ?? ''
}

const RECIPIENT_FIELDS = ['final-recipient', 'original-recipient']
/** Fields that are about the message and never about a recipient (RFC 3464 §2.2). */
const MESSAGE_FIELDS = ['reporting-mta', 'arrival-date', 'received-from-mta', 'original-envelope-id', 'dsn-gateway']

/** The empty line in front of a recipient is missing: the field is there already, or the group is the message's. */
function startsGroup(group: FieldGroup, name: string): boolean {
  if (!RECIPIENT_FIELDS.includes(name)) return false
  const isOfMessage = MESSAGE_FIELDS.some((field) => group.has(field)) && !group.has('action') && !group.has('status')
  return group.has(name) || (isOfMessage && !RECIPIENT_FIELDS.some((field) => group.has(field)))
}

function appendToLast(values: string[] | undefined, line: string): void {
  const last = values?.at(-1)
  if (values === undefined || last === undefined || last.length > MOST_VALUE_CHARACTERS) return
  values[values.length - 1] = `${last} ${line.slice(0, MOST_VALUE_CHARACTERS).trim()}`
}
