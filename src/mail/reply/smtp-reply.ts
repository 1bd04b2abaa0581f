/** An SMTP reply and the stage of the dialogue it belongs to (RFC 5321 §4.2, RFC 3463). */

/** Where in the dialogue something happened; `dot` is the final dot after the message body. */
export type SmtpStage = 'connect' | 'banner' | 'ehlo' | 'starttls' | 'mail' | 'rcpt' | 'data' | 'dot'

/** The stage that a report tells of; `dsn` when it tells of none. */
export type ReportStage = SmtpStage | 'dsn'

export interface SmtpReply {
  /** 200 to 599. */
  code: number
  /** The remote enhanced code as d.d.d, or null when there is none or its class disagrees with `code`. */
  enhancedCode: string | null
  /** The whole reply on one line, control characters as spaces, at most MOST_REPLY_CHARACTERS. */
  text: string
}

export const MOST_REPLY_CHARACTERS = 2_048

/**
 * Reads a raw reply such as `550-5.1.1 No\r\n550 5.1.1 such user`. Undefined when it does not start with a code or its
 * lines have different ones: such a reply has no meaning, the caller treats it as a lost connection.
 */
export function readSmtpReply(raw: string): SmtpReply | undefined {
  // The line ends of every server, also of those that forget the CR.
  const lines = raw.trim().split(/\r?\n/)
  const first = lines[0] ?? ''
  // Three digits, then a space, a hyphen or the end.
  const digits = /^([2-5]\d\d)(?:[ -]|$)/.exec(first)?.[1]
  if (digits === undefined) return undefined
  // A line that has another code in front.
  const isMixed = lines.some((line) => /^\d{3}(?:[ -]|$)/.test(line) && !line.startsWith(digits))
  if (isMixed) return undefined
  // Right behind the reply code, a number sign before it allowed (Cisco writes `550 #5.1.0`); no further digits or
  // dots.
  const found = /^\d{3}[ -]\s*#?([245]\.\d{1,3}\.\d{1,3})(?!\w|\.\d)/.exec(first)?.[1]
  // RFC 2034 §4: its class repeats the reply's first digit.
  const enhancedCode = found !== undefined && found.charAt(0) === digits.charAt(0) ? found : null
  return { code: Number(digits), enhancedCode, text: oneLine(lines, digits, enhancedCode) }
}

/** Replies may have many lines, each with the codes in front: only the first keeps them. */
function oneLine(lines: readonly string[], digits: string, enhancedCode: string | null): string {
  const text = lines
    .map((line, index) => (index === 0 ? line : withoutCodes(line, digits, enhancedCode)))
    .join(' ')
    // Every control character, so that a stored or logged reply stays one line.
    .replace(/\p{Cc}+/gu, ' ')
    .slice(0, MOST_REPLY_CHARACTERS)
    // Half of a character, where the cut or the server's bytes left one.
    .toWellFormed()
  return text.trimEnd()
}

function withoutCodes(line: string, digits: string, enhancedCode: string | null): string {
  const text = line.startsWith(digits) ? line.slice(digits.length + 1) : line
  return enhancedCode !== null && text.startsWith(`${enhancedCode} `) ? text.slice(enhancedCode.length + 1) : text
}

// Of both forms of `message-token.ts`: the head, and the first two bits of the message id, make the first two characters.
const ANY_TOKEN = /(?<![a-z0-9])c[a-d](?:[a-z2-7]{46}|[a-z2-7]{54})(?![a-z0-9])/gi

/**
 * What others may read of a dialogue. Whoever has a token may report by it, and servers repeat the return path in what
 * they refuse and the Message-ID of what they take.
 */
export function withoutTokens(text: string): string {
  return text.replace(ANY_TOKEN, '…')
}
