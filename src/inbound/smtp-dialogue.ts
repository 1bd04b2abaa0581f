/**
 * The dialogue of smtp-server with what our doors need otherwise (inbound/README.md "What smtp-server leaves to us").
 * It leans on methods of the library that are not in its manual; the tests of the doors pin each of them.
 */
import type { Socket } from 'node:net'
import { SMTPServer, type SMTPServerOptions } from 'smtp-server'
import { SMTPConnection } from 'smtp-server/lib/smtp-connection.js'
import { MINUTE, type Clock } from '../base/clock.ts'
import { readDataInOnePass } from '../mail/smtp-data.ts'

interface DialogueRules {
  clock: Clock
  /** The answer to a recipient that is no address: a code, and a text with its enhanced code. */
  badRecipient: { code: number; text: string }
  /** AUTH without TLS is allowed. */
  allowsPlainLogin: boolean
  /** Called when the connection that began on this socket has ended. */
  onEnd(socket: Socket): void
}

const MOST_REFUSALS = 50
const MOST_MESSAGES = 100
const SESSION_MILLISECONDS = 10 * MINUTE
/** RFC 5321 §4.5.3.2.7. Workers of applications keep their connection between two mails. */
const IDLE_BEHIND_LOGIN_MILLISECONDS = 5 * MINUTE
/** A message that begins after this would be cut by the end of the session. */
const LAST_MESSAGE_MILLISECONDS = 8 * MINUTE
/** RFC 5321 §4.5.3.1.5: a reply line has at most 512 octets with its code and line end. */
const MOST_LINE_CHARACTERS = 500
// A reply text that brings its own enhanced code.
const OWN_CODE = /^[245]\.\d{1,3}\.\d{1,3} /
// A path that opens with a source route, RFC 5321 §4.1.2: the library would drop the route.
const SOURCE_ROUTE = /^[^:]*:\s*<\s*@/
const REQUIRES_TLS = { code: 555, message: '5.5.4 REQUIRETLS is not offered', enhancedCode: null }
// The command and its path, whatever that holds but control characters.
const SENDER = /^([^:]*:\s*)<([^<>\p{Cc}]*)>/u

export function createDialogueServer(options: SMTPServerOptions, rules: DialogueRules): SMTPServer {
  const server = new SMTPServer({ ...options, hideENHANCEDSTATUSCODES: false })
  server.connect = (socket, socketOptions) => {
    const dialogue = new SmtpDialogue(server, socket, socketOptions, rules)
    server.connections.add(dialogue)
    dialogue.on('error', (error: Error) => server.emit('error', error))
    dialogue.init()
  }
  return server
}

class SmtpDialogue extends SMTPConnection {
  private readonly rules: DialogueRules
  private readonly beganOn: Socket
  private beganAt = 0
  private refusals = 0
  private cancelEnd = (): void => {}

  constructor(
    server: SMTPServer,
    socket: Socket,
    options: ConstructorParameters<typeof SMTPConnection>[2],
    rules: DialogueRules,
  ) {
    super(server, socket, options)
    this.rules = rules
    this.beganOn = socket
    this.begin()
  }

  private begin(): void {
    const { clock } = this.rules
    this.cancelEnd()
    this.cancelEnd = clock.after(SESSION_MILLISECONDS, () => this.send(421, '4.4.2 the session took too long'))
    this.beganAt = clock.now()
    this.refusals = 0
  }

  override send(code: number, data?: string | string[] | null, context?: string | false): void {
    const { badRecipient } = this.rules
    keepAnswering(this._socket)
    if (context === 'MAILBOX_SYNTAX_ERROR') return this.send(badRecipient.code, badRecipient.text)
    // RFC 5321 §4.5.3.1.10: each recipient beyond the limit is told so, and the client comes again with them.
    const isRefusal = code >= 400 && context !== 'TOO_MANY_RECIPIENTS'
    if (isRefusal && ++this.refusals > MOST_REFUSALS) return super.send(421, '4.7.0 too many errors', false)
    if (code === 235) this._socket.setTimeout(IDLE_BEHIND_LOGIN_MILLISECONDS)
    // What the library says here does not lead a developer to the fix.
    if (code === 504) return super.send(504, '5.5.4 this way to log in is not offered: use PLAIN or LOGIN', false)
    if (code === 530 && !this.mayLogIn()) return super.send(530, '5.7.0 must issue a STARTTLS command first', false)
    if (typeof data !== 'string' || !OWN_CODE.test(data)) return super.send(code, data, context)
    super.send(code, data.length > MOST_LINE_CHARACTERS ? inLines(data) : data, false)
  }

  override handler_EHLO(command: Buffer, callback: () => void): void {
    const { disabledCommands } = this._server.options
    if (!this.mayLogIn()) this.session.disabledCommands = [...disabledCommands, 'AUTH']
    super.handler_EHLO(command, callback)
    delete this.session.disabledCommands
  }

  override handler_AUTH(command: Buffer, callback: () => void): void {
    if (this.mayLogIn()) return super.handler_AUTH(command, callback)
    this.send(530)
    callback()
  }

  override handler_MAIL(command: Buffer, callback: () => void): void {
    const hasLoggedIn = Boolean(this.session.user)
    // Libraries of applications send a whole list on one connection, and take a 421 for the end of it.
    if (hasLoggedIn) this.begin()
    const age = this.rules.clock.now() - this.beganAt
    if (hasLoggedIn || (this._transactionCounter < MOST_MESSAGES && age < LAST_MESSAGE_MILLISECONDS)) {
      return super.handler_MAIL(command, callback)
    }
    this.send(421, '4.7.0 enough on this connection, open another one')
    callback()
  }

  override handler_RCPT(command: Buffer, callback: () => void): void {
    if (!SOURCE_ROUTE.test(command.toString())) return super.handler_RCPT(command, callback)
    this.send(501, '', 'MAILBOX_SYNTAX_ERROR')
    callback()
  }

  /** No door minds the sender; hosts with an underscore, and users without a domain, are no address to the library. */
  override _parseAddressCommand(
    name: string,
    command: Buffer | string,
  ): ReturnType<SMTPConnection['_parseAddressCommand']> {
    const parsed = super._parseAddressCommand(name, command)
    const text = command.toString()
    const address = parsed === false && name === 'mail from' ? SENDER.exec(text)?.[2] : undefined
    if (address === undefined) return parsed
    const withoutSender = super._parseAddressCommand(name, text.replace(SENDER, '$1<>'))
    return withoutSender === false ? false : { ...withoutSender, address }
  }

  /** Never offered; the library takes it all the same, and the sender would rely on it (RFC 8689 §4.1). */
  override _validateMailParams(
    parsed: Parameters<SMTPConnection['_validateMailParams']>[0],
  ): ReturnType<SMTPConnection['_validateMailParams']> {
    if (parsed.args && 'REQUIRETLS' in parsed.args) return REQUIRES_TLS
    return super._validateMailParams(parsed)
  }

  override upgrade(...callbacks: Parameters<SMTPConnection['upgrade']>): void {
    // Who leaves in the middle of a handshake is gone.
    this._socket.allowHalfOpen = false
    super.upgrade(...callbacks)
  }

  override _createParser(): ReturnType<SMTPConnection['_createParser']> {
    const parser = super._createParser()
    readDataInOnePass(parser)
    // The client sends no more, and what it sent is answered.
    parser.once('finish', () => {
      if (this._parser === parser) this.close()
    })
    return parser
  }

  override _onClose(): void {
    super._onClose()
    this.cancelEnd()
    this.rules.onEnd(this.beganOn)
  }

  private mayLogIn(): boolean {
    return this.secure || this.rules.allowsPlainLogin
  }
}

/** Exim closes its half behind QUIT, before its mail is answered; the library answers only where both are open. */
function keepAnswering(socket: Socket): void {
  socket.allowHalfOpen = true
  if (socket.readyState !== 'writeOnly') return
  Object.defineProperty(socket, 'readyState', { get: () => (socket.writable ? 'open' : 'closed') })
}

/** Cut at spaces; the enhanced code opens every line (RFC 2034 §4). */
function inLines(text: string): string[] {
  const [enhancedCode = '', ...words] = text.split(' ')
  const lines = [enhancedCode]
  for (const word of words) {
    const line = `${lines.at(-1)} ${word}`
    if (line.length > MOST_LINE_CHARACTERS) lines.push(`${enhancedCode} ${word}`)
    else lines[lines.length - 1] = line
  }
  return lines
}
