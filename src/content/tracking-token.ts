/**
 * The tokens in what leads back to us: open (`/o/`), click (`/c/`) and unsubscribe (`/u/`, `u-…@`) (content/README.md
 * "Tokens"). The number in them is that of a link or a list, and zero for an open.
 */
import type { KeyObject } from 'node:crypto'
import { makeToken, readToken } from '../mail/message-token.ts'

interface ClickFacts {
  messageId: string
  linkNumber: number
}

interface UnsubscribeFacts {
  messageId: string
  /** 0: the list of the message's content. */
  listNumber: number
}

/** 35 bytes, 56 characters. */
const FORM = { hasNumber: true, macBytes: 16 }

/** Throws for what is no message id, as the two below: only our own ids come here. */
export function openToken(messageId: string, key: KeyObject): string {
  return makeToken(FORM, 'open', { messageId, number: 0 }, key)
}

export function clickToken(messageId: string, linkNumber: number, key: KeyObject): string {
  return makeToken(FORM, 'click', { messageId, number: linkNumber }, key)
}

export function unsubscribeToken(messageId: string, listNumber: number, key: KeyObject): string {
  return makeToken(FORM, 'unsubscribe', { messageId, number: listNumber }, key)
}

/** The message id of a genuine token. */
export function readOpenToken(text: string, key: KeyObject): string | undefined {
  const read = readToken(FORM, 'open', text, key)
  return read?.number === 0 ? read.messageId : undefined
}

export function readClickToken(text: string, key: KeyObject): ClickFacts | undefined {
  const read = readToken(FORM, 'click', text, key)
  return read === undefined ? undefined : { messageId: read.messageId, linkNumber: read.number }
}

export function readUnsubscribeToken(text: string, key: KeyObject): UnsubscribeFacts | undefined {
  const read = readToken(FORM, 'unsubscribe', text, key)
  return read === undefined ? undefined : { messageId: read.messageId, listNumber: read.number }
}
