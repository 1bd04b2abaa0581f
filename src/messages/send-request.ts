/**
 * A request to send one mail, as the doors (HTTP, later SMTP submission) hand it over.
 *
 * The door has only looked at JSON types; every rule about the values is `accept-message.ts`'s. A field of the wrong
 * type is left undefined and named in `wrongTypes`, because the order of answers (contract.md 2.1) wants the recipient
 * judged first and the rest listed with it.
 */

/** null: with `variables` absent nothing is substituted, braces are ordinary text. */
export type GivenVariables = Record<string, unknown> | null

export interface GivenAttachment {
  name: string | undefined
  /** base64, not yet checked. */
  content: string | undefined
  contentType: string | undefined
  contentId: string | undefined
}

export interface SendRequest {
  /** undefined: missing, null, or not a string. */
  to: string | undefined
  from: string | undefined
  subject: string | undefined
  html: string | undefined
  /** '' is a value: the caller wants no text part. */
  text: string | undefined
  replyTo: string | undefined
  attachments: GivenAttachment[]
  variables: GivenVariables
  /** What the door found wrong about types, each as `path: problem`, e.g. `html: must be a string`. */
  wrongTypes: string[]
}

/** Who asks. */
export interface Caller {
  apiKeyId: string | null
  mode: 'live' | 'test'
  /** Sending domains the key may use; empty: all. */
  domains: string[]
  source: 'api'
}

/** What is answered after the commit; `acceptedAt` in Unix milliseconds. */
export interface AcceptedMessage {
  messageId: string
  acceptedAt: number
}

export type AcceptMessage = (request: SendRequest, caller: Caller) => Promise<AcceptedMessage>
