/**
 * What a diagnostic text holds: reply code, enhanced code, and the stage of the dialogue it tells of. Pure and linear;
 * texts are cut at 2,048 characters first. RFC 3463 §2, RFC 3464 §2.3.6, RFC 5321 §4.2.
 */
import { MOST_REPLY_CHARACTERS, type ReportStage } from '../reply/smtp-reply.ts'
import type { ReportedFacts } from './report-reading.ts'
import { anyOf } from './wordings.ts'

/** What a diagnostic text tells about a recipient, and what a status field does. */
export function factsIn(diagnostic: string, stated = ''): ReportedFacts {
  const [status, replyCode] = [statedStatus(stated, diagnostic), replyCodeIn(diagnostic)]
  return { status, replyCode, diagnostic, stage: stageIn(diagnostic) }
}

/** One line, the diagnostic type (`smtp;`) taken off, control characters as spaces. */
export function diagnosticText(value: string): string {
  return value
    .slice(0, MOST_REPLY_CHARACTERS)
    .replace(/^\s*(?:smtp|x-[\w-]+|unix|lmtp)\s*;/i, '')
    .replace(/[\p{Cc}\s]+/gu, ' ')
    .trim()
    .toWellFormed()
}

// Three digits of a refusal with a separator behind; no part of a number, a name or a version in front. And no count of
// anything behind it.
const REPLY_CODE = new RegExp(
  /(?:^|[^\w.:/#@+-]|#(?=\d{3} [45]\.)|said:|code[ :=]|<<<|>>>)([45][0-5]\d)(?=[ \-:;,)]|$)/.source +
    /(?! (?:minutes|hours|days|seconds|attempts|bytes|octets|kb|mb)\b)/.source,
  'gi',
)

/** The first reply code of a text, or null. */
export function replyCodeIn(text: string): number | null {
  const found = text.slice(0, MOST_REPLY_CHARACTERS).matchAll(REPLY_CODE).next().value?.[1]
  return found === undefined ? null : Number(found)
}

// Programs whose versions look like a code, such as `Postfix/2.5.1`. Words that say less stand before codes as well.
const VERSION_IN_FRONT = /(?<!\b(?:exim|postfix|haraka|opensmtpd|mailman|dovecot|cyrus|amavis\S*)[ /]v?)/
// Without one of these in front a code is a date, such as `4.5.26`, where its end may be a year: the start, a reply code,
// brackets and other marks, a label. Codes of subject 7 do end so.
const YEAR_IN_CODE = /(?!\d\.[0-6]\.[2-9]\d(?!\d))/
const CODE_IN_FRONT = /(?<=(?:^|[245]\d\d[ -]|[#:;=([<"'`]|\b(?:said|status|code|error|dsn|smtp)) {0,9})/
// d.d.d that is no piece of an address or a version number; subjects end at 7 (RFC 3463 §2).
const ENHANCED_CODE = new RegExp(
  /(?:(?<![\d.\w-])|(?<=(?<![\d.\w-])[245]\d\d-))/.source +
    VERSION_IN_FRONT.source +
    `(?:${YEAR_IN_CODE.source}|${CODE_IN_FRONT.source})` +
    /([245]\.[0-7]\.\d{1,3})(?![\d\w-]|\.\d)/.source,
  'gi',
)

/** Every enhanced code of a text, in its order. */
function enhancedCodesIn(text: string): string[] {
  return [...text.slice(0, MOST_REPLY_CHARACTERS).matchAll(ENHANCED_CODE)].map(([, code = '']) => code)
}

/**
 * The code that says most: what the remote server said goes before the summary of the server that reports, unless it is
 * the vaguer one.
 */
export function statedStatus(field: string, diagnostic: string): string | null {
  const summary = enhancedCodesIn(field)[0]
  const refusals = enhancedCodesIn(diagnostic).filter((code) => !code.startsWith('2'))
  const told = refusals.length > 0 ? refusals : enhancedCodesIn(diagnostic)
  const best = told.toSorted((one, other) => vagueness(one) - vagueness(other))[0]
  if (summary === undefined) return best ?? null
  if (best === undefined) return summary
  return vagueness(best) <= vagueness(summary) ? best : summary
}

/** 0 for a code that names a cause; X.4.7 says only that the time is over, X.d.0 only what it is about. */
export function vagueness(code: string): number {
  if (code.endsWith('.0.0')) return 3
  if (code.endsWith('.0')) return 2
  return code.endsWith('.4.7') ? 1 : 0
}

/** Wordings of many servers that name the command which was answered; the first that fits counts. */
const STAGES: readonly (readonly [ReportStage, RegExp])[] = [
  [
    'rcpt',
    anyOf([
      /in reply to (?:the )?RCPT|after (?:sending )?RCPT|SMTP[ :]RCPT|for RCPT|RCPT (?:command|response)|\[RCPT_TO\]/,
      /does not like recipient|recipients? was rejected by a remote|(?:>>>|like our|command:?|sent:) RCPT TO/,
    ]),
  ],
  [
    'dot',
    anyOf([
      /in reply to (?:the )?(?:end of )?DATA|after (?:the )?end of (?:data|message)|after I sent the message/,
      /(?:TEXT|final DATA|DATA|EOM|BDAT) command|like our (?:final )?DATA|\(DATA\)|DATA SEND|>>> (?:DATA|\.)/,
      /\[(?:DATA|EOM|END_OF_DATA)\]/,
    ]),
  ],
  [
    'mail',
    anyOf([
      /in reply to (?:the )?MAIL|after (?:sending )?MAIL|MAIL command|\[MAIL_FROM\]|like our MAIL|>>> MAIL/,
      /sender was rejected|does not like sender/,
    ]),
  ],
  [
    'ehlo',
    anyOf([
      /in reply to (?:the )?(?:EH|HE)LO|after (?:sending )?(?:EH|HE)LO|(?:EH|HE)LO command|>>> (?:EH|HE)LO/,
      /my name was rejected|like our (?:EH|HE)LO|\[(?:EH|HE)LO\]|(?:EH|HE)LO (?:failed|refused|rejected)/,
    ]),
  ],
  ['connect', /initial connection|refused to talk to me|initial server greeting|does not like me|greeting failed/i],
]

export function stageIn(text: string): ReportStage {
  const short = text.slice(0, MOST_REPLY_CHARACTERS)
  return STAGES.find(([, wording]) => wording.test(short))?.[0] ?? 'dsn'
}

/** More of what is said of a recipient is not read. */
export const MOST_SEGMENT_CHARACTERS = 8_192

/** Of what prose says about a recipient the paragraph that tells why: where the remote server is quoted. One line. */
export function proseDiagnostic(segment: string): string {
  const paragraphs = segment.slice(0, MOST_SEGMENT_CHARACTERS).split(/\n\s{0,200}\n/)
  const oneLine = (text: string): string => text.replaceAll('\n', ' ')
  const withCode =
    paragraphs.find((text) => replyCodeIn(oneLine(text)) !== null) ??
    paragraphs.find((text) => enhancedCodesIn(oneLine(text)).length > 0)
  return diagnosticText(withCode ?? segment)
}
