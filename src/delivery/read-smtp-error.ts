/**
 * Reads what the SMTP library reports: which stage of the dialogue ended how.
 *
 * Pure but for looking at the connection it was given. A reply that is no proper SMTP reply (no code, several codes in
 * one reply, too many lines) is a lost connection at its stage: nothing may be concluded from it. Engine.md 10.2.
 */
import { errorCode, errorText } from '../base/errors.ts'
import { MOST_REPLY_CHARACTERS, readSmtpReply } from '../mail/smtp-reply.ts'
import type { SmtpReply } from '../mail/smtp-reply.ts'
import type { PathFailure, TryEnd } from './try-result.ts'

export type SendEnd = Extract<TryEnd, { kind: 'accepted' | 'refused' | 'lost' | 'unanswered' | 'unacceptable' }>

export interface SetupFailure {
  stage: PathFailure['stage']
  code: string
  reason: string
}

/** How far a transaction came. */
export interface SendProgress {
  isBodyBegun: boolean
  /** The final dot may have left. */
  isDotSent: boolean
}

/** What is read of the library's connection. */
interface ConnectionState {
  lastServerResponse: string | false
  upgrading?: boolean | undefined
  secure: boolean
}

const MOST_REPLY_LINES = 100 // hardening.md A22

/** The library's fields on an error; all of them may be missing. */
interface SmtpErrorFacts {
  command: string
  response: string
}

/** Which stage before MAIL failed. None of these is ever about the message. */
export function setupFailure(connection: ConnectionState, error: Error): SetupFailure {
  const { command, response } = readFacts(error)
  const stage = setupStage(connection, command)
  const reason = readSmtpReply(response)?.text ?? oneLine(errorText(error))
  return { stage, code: setupCode(stage, response), reason }
}

function setupStage(connection: ConnectionState, command: string): SetupFailure['stage'] {
  if (connection.upgrading === true || command === 'STARTTLS') return 'starttls'
  if (command === 'EHLO' || command === 'HELO') return 'ehlo'
  const last = connection.lastServerResponse
  if (last === false || !last.startsWith('2')) return 'banner'
  // A line of the reply to EHLO that announces STARTTLS: what failed next was that command.
  return !connection.secure && /^250[ -]STARTTLS\b/im.test(last) ? 'starttls' : 'ehlo'
}

function setupCode(stage: SetupFailure['stage'], response: string): string {
  if (stage === 'starttls') return '4.7.4'
  if (response !== '') return '4.3.2'
  return stage === 'banner' ? '4.4.1' : '4.4.2'
}

/** The reply to the final dot, when the library took it for a success. */
export function readSendReply(response: string, progress: SendProgress): SendEnd {
  // An answer before the question: the peer has lost the thread, and nothing was handed over yet.
  const isEarly = !progress.isDotSent
  if (isEarly) return { kind: 'lost', stage: 'data', reason: oneLine(`reply before the final dot: ${response}`) }
  const reply = isReplyWellFormed(response) ? readSmtpReply(response) : undefined
  if (reply === undefined) return { kind: 'unanswered', reason: 'malformed reply to the final dot' }
  return { kind: 'accepted', reply }
}

export function readSendError(error: Error | null, progress: SendProgress): SendEnd {
  const { command, response } = readFacts(error)
  const reason = error === null ? 'no reply' : oneLine(errorText(error))
  const reply = isReplyWellFormed(response) ? refusal(response) : undefined
  if (progress.isDotSent) {
    // Only a complete reply in the place of the 250 answers the dot.
    if (reply !== undefined && errorCode(error) === 'EMESSAGE') return { kind: 'refused', stage: 'dot', reply }
    return { kind: 'unanswered', reason }
  }
  if (progress.isBodyBegun) {
    // A refusal in the middle of the body: whatever it means, nothing was handed over.
    return { kind: 'lost', stage: 'data', reason: reply?.text ?? reason }
  }
  if (errorCode(error) === 'EMESSAGE' && command === 'MAIL FROM' && response === '') {
    return { kind: 'unacceptable', cause: 'too_large', reason: `the receiving host takes no such size: ${reason}` }
  }
  // With the command CONN the reply came with the end of the connection: it is complete only as a 421.
  if (reply === undefined || (command === 'CONN' && reply.code !== 421)) return { kind: 'lost', stage: 'mail', reason }
  return { kind: 'refused', stage: refusedStage(command), reply }
}

/** A 421 that ends a pipelined envelope comes with the command CONN: MAIL was answered by then. */
function refusedStage(command: string): 'mail' | 'rcpt' | 'data' {
  if (command === 'MAIL FROM') return 'mail'
  return command === 'DATA' ? 'data' : 'rcpt'
}

/** Every line starts with the same code, and there are not too many. */
export function isReplyWellFormed(raw: string): boolean {
  const lines = raw.split('\n')
  const code = raw.slice(0, 3)
  const isOneReply = lines.length <= MOST_REPLY_LINES && lines.every((line) => line.startsWith(code))
  return isOneReply && readSmtpReply(raw) !== undefined
}

function refusal(response: string): SmtpReply | undefined {
  const reply = readSmtpReply(response)
  return reply !== undefined && reply.code >= 400 ? reply : undefined
}

/** The library's texts repeat what the peer sent, whatever that was; ours are stored and shown as one short line. */
function oneLine(text: string): string {
  // Every control character.
  return text.replace(/\p{Cc}+/gu, ' ').slice(0, MOST_REPLY_CHARACTERS).toWellFormed()
}

function readFacts(error: Error | null): SmtpErrorFacts {
  if (error === null) return { command: '', response: '' }
  return { command: textField(error, 'command'), response: textField(error, 'response') }
}

function textField(error: Error, name: 'command' | 'response'): string {
  const value: unknown = Reflect.get(error, name)
  return typeof value === 'string' ? value : ''
}
