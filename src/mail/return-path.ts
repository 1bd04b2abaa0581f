/**
 * The two tokens that name a message in mail itself (content/README.md "Tokens"): VERP (`b-<token>@<return path>`, the
 * envelope sender) and complaint (Message-ID, X-Sternpost-Ref). RFC 5321 §4.5.3.1.1: a local part has at most 64
 * octets.
 */
import type { KeyObject } from 'node:crypto'
import { makeToken, readToken } from './message-token.ts'

/** 30 bytes, 48 characters. */
const FORM = { hasNumber: false, macBytes: 13 }

/** The envelope sender of a message, the same on every attempt. */
export function returnPathAddress(messageId: string, returnPathDomain: string, bounceKey: KeyObject): string {
  return `b-${returnPathToken(messageId, bounceKey)}@${returnPathDomain}`
}

/** Throws for what is no message id: only our own ids come here. */
export function returnPathToken(messageId: string, key: KeyObject): string {
  return makeToken(FORM, 'bounce', { messageId, number: 0 }, key)
}

export function complaintToken(messageId: string, key: KeyObject): string {
  return makeToken(FORM, 'complaint', { messageId, number: 0 }, key)
}

/** The message id of a genuine VERP token, without `b-` and domain. */
export function readReturnPathToken(text: string, key: KeyObject): string | undefined {
  return readToken(FORM, 'bounce', text, key)?.messageId
}

export function readComplaintToken(text: string, key: KeyObject): string | undefined {
  return readToken(FORM, 'complaint', text, key)?.messageId
}
