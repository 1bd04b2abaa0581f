/**
 * Writes header fields (content/README.md "Headers"): text of any language becomes encoded words, and lines are folded.
 * The result decodes to exactly what was given, controls included, and has CRLF only inside a fold. RFC 5322 §2.2.3,
 * RFC 2047 §2 and §5, RFC 6532.
 */
import type { Mailbox } from '../../mail/message.ts'

/** RFC 5322 §2.1.1 recommends 78 without the CRLF; one is kept for a comma. */
const MOST_LINE_CHARACTERS = 76
/** RFC 2047 §2 allows encoded words of 75; 64 with their frame leave room for a field's name on the first line. */
const MOST_WORD_TEXT_CHARACTERS = 64 - '=?UTF-8?B??='.length
const MOST_PLAIN_WORD_CHARACTERS = 60
/** RFC 5322 §2.1.1, without the CRLF. */
const LONGEST_LINE_CHARACTERS = 998

// Printable ASCII with single spaces between words and none at the ends.
const PLAIN_WORDS = /^[!-~]+(?: [!-~]+)*$/
// Printable ASCII and tabs, neither space nor tab at the ends.
const VERBATIM = /^[!-~](?:[\t -~]*[!-~])?$/
// Spaces and tabs at the ends; each run of them is looked at from its first one alone.
const ENDS = /^[\t ]+|(?<![\t ])[\t ]+$/g
// No control characters, and single spaces between words.
const UNICODE_WORDS = /^[^\p{Cc} ]+(?: [^\p{Cc} ]+)*$/u
// The first space behind a word.
const SPACE_BEHIND_WORD = /(?<=[^\t ]) /
// Atoms of RFC 5322 with single spaces between them.
const PLAIN_PHRASE = /^[A-Za-z0-9!#$%&'*+\-/=?^_`{|}~]+(?: [A-Za-z0-9!#$%&'*+\-/=?^_`{|}~]+)*$/
// Printable ASCII.
const PRINTABLE = /^[ -~]*$/
// What stands for itself in the Q encoding at any place (RFC 2047 §5 (3)).
const QUOTED_LITERAL = /[A-Za-z0-9!*+\-/]/

/** A field such as Subject. */
export function textField(name: string, text: string): string {
  if (text === '') return `${name}:\r\n`
  return foldField(name, isPlain(text, PLAIN_WORDS) ? text.split(' ') : encodedWords(text))
}

/** A field such as From or To, with one mailbox. */
export function mailboxField(name: string, mailbox: Mailbox): string {
  return foldField(name, mailboxWords(mailbox))
}

/** A field such as Cc, with at least one mailbox. */
export function mailboxesField(name: string, mailboxes: readonly Mailbox[]): string {
  return foldField(
    name,
    mailboxes.flatMap((mailbox, index) => {
      const words = mailboxWords(mailbox)
      return index === mailboxes.length - 1 ? words : [...words.slice(0, -1), `${words.at(-1)},`]
    }),
  )
}

/**
 * A customer's own field, without white space at the ends of its value. ASCII stays as it is, since a structure may be
 * in it (`References`, `List-Id`), and is folded at white space alone. Of a value in another language only the words that
 * need it become encoded words; of everything else all of it does.
 */
export function customField(name: string, given: string): string {
  const value = given.replace(ENDS, '')
  if (value.includes('=?')) return textField(name, value)
  if (!VERBATIM.test(value)) {
    const isOfWords = UNICODE_WORDS.test(value) && value.length <= LONGEST_LINE_CHARACTERS - name.length - 2
    return isOfWords ? foldField(name, mixedWords(value.split(' '))) : textField(name, value)
  }
  if (name.length + 2 + value.length <= MOST_LINE_CHARACTERS) return plainField(name, value)
  // More white space than one space stays in front of its word.
  const words = value.split(SPACE_BEHIND_WORD)
  const isFoldable = words.every((word) => name.length + 2 + word.length <= LONGEST_LINE_CHARACTERS)
  return isFoldable ? foldField(name, words) : textField(name, value)
}

/** A field whose value is tokens of ours, such as Date, Message-ID or List-Unsubscribe; folded between them alone. */
export function plainField(name: string, ...tokens: string[]): string {
  return foldField(name, tokens)
}

/** Printable US-ASCII alone. */
export function isAscii(text: string): boolean {
  return PRINTABLE.test(text)
}

function mailboxWords({ name, address }: Mailbox): string[] {
  return name === null ? [address] : [...phrase(name), `<${address}>`]
}

function phrase(name: string): string[] {
  if (isPlain(name, PLAIN_PHRASE)) return name.split(' ')
  const isQuotable = isPlain(name, PRINTABLE) && name.length <= MOST_PLAIN_WORD_CHARACTERS
  // A quote or a backslash, which a quoted string escapes.
  return isQuotable ? [`"${name.replace(/["\\]/g, '\\$&')}"`] : encodedWords(name)
}

function isPlain(text: string, pattern: RegExp): boolean {
  if (!pattern.test(text) || text.includes('=?')) return false
  return text.split(' ').every((word) => word.length <= MOST_PLAIN_WORD_CHARACTERS)
}

function foldField(name: string, words: readonly string[]): string {
  let lines = `${name}:`
  let column = lines.length
  words.forEach((word, index) => {
    // Never before the first word: an empty first line confuses some readers.
    const isFolded = index > 0 && column + 1 + word.length > MOST_LINE_CHARACTERS
    lines += isFolded ? `\r\n ${word}` : ` ${word}`
    column = (isFolded ? 0 : column) + 1 + word.length
  })
  return `${lines}\r\n`
}

/** In whichever of the two encodings is shorter; no character is cut in two. White space between them is not text. */
function encodedWords(text: string): string[] {
  const characters = [...text]
  const quoted = characters.map(quotedCharacter)
  const quotedLength = quoted.reduce((sum, character) => sum + character.length, 0)
  if (quotedLength <= (Buffer.byteLength(text) * 4) / 3) {
    return groups(quoted, MOST_WORD_TEXT_CHARACTERS, ({ length }) => length).map((group) => `=?UTF-8?Q?${group}?=`)
  }
  const most = Math.floor(MOST_WORD_TEXT_CHARACTERS / 4) * 3
  return groups(characters, most, (character) => Buffer.byteLength(character)).map(
    (group) => `=?UTF-8?B?${Buffer.from(group).toString('base64')}?=`,
  )
}

function quotedCharacter(character: string): string {
  if (character === ' ') return '_'
  if (QUOTED_LITERAL.test(character)) return character
  return [...Buffer.from(character)].map((byte) => `=${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('')
}

/** Neighbours are encoded together: white space between two encoded words is not text (RFC 2047 §6.2). */
function mixedWords(words: readonly string[]): string[] {
  const mixed: string[] = []
  let beyondAscii: string[] = []
  const encode = (): void => {
    if (beyondAscii.length > 0) mixed.push(...encodedWords(beyondAscii.join(' ')))
    beyondAscii = []
  }
  for (const word of words) {
    if (isAscii(word)) {
      encode()
      mixed.push(word)
    } else {
      beyondAscii.push(word)
    }
  }
  encode()
  return mixed
}

/** Characters joined to groups whose sizes add up to at most `most`. */
function groups(characters: readonly string[], most: number, sizeOf: (character: string) => number): string[] {
  const found: string[] = []
  let group = ''
  let size = 0
  for (const character of characters) {
    const isFull = group !== '' && size + sizeOf(character) > most
    if (isFull) found.push(group)
    group = isFull ? character : group + character
    size = (isFull ? 0 : size) + sizeOf(character)
  }
  return [...found, group]
}
