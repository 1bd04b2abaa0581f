/**
 * The states of a message (http/README.md "States of a message") in plain words, for answers that say why something
 * cannot be done. Pure.
 */
import type { MessageState } from '../../mail/message.ts'

const WORDS: Readonly<Record<MessageState, string>> = {
  scheduled: 'it waits for its time',
  queued: 'it waits to be sent',
  sending: 'its SMTP transaction is under way',
  deferred: 'it waits for its next attempt',
  delivered: "the recipient's server has taken it",
  bounced: 'it was refused for good',
  expired: 'its lifetime is over',
  canceled: 'it was withdrawn',
  suppressed: 'its address is on the suppression list',
}

/** A clause such as `it was withdrawn`. */
export function reasonAgainst(state: MessageState): string {
  return WORDS[state]
}
