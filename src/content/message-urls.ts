/**
 * The addresses in one message that lead back to this server: links, pixel, unsubscribing (content/README.md "Tokens").
 * Pure. `baseUrl` is scheme and host from the configuration, without a slash at the end.
 */
import type { KeyObject } from 'node:crypto'
import { clickToken, openToken, unsubscribeToken } from '../mail/message-token.ts'

export interface MessageUrls {
  link(linkNumber: number): string
  pixel(): string
  /** Where the mail client or the recipient unsubscribes. */
  unsubscribe(): string
  unsubscribeToken(): string
}

interface MessageUrlsOptions {
  messageId: string
  baseUrl: string
  keys: { open: KeyObject; click: KeyObject; unsubscribe: KeyObject }
}

/** That of the content: a message has no other. */
const LIST_NUMBER = 0

export function messageUrls({ messageId, baseUrl, keys }: MessageUrlsOptions): MessageUrls {
  let token: string | undefined
  const ofUnsubscribing = (): string => (token ??= unsubscribeToken(messageId, LIST_NUMBER, keys.unsubscribe))
  return {
    link: (linkNumber) => `${baseUrl}/c/${clickToken(messageId, linkNumber, keys.click)}`,
    pixel: () => `${baseUrl}/o/${openToken(messageId, keys.open)}`,
    unsubscribe: () => `${baseUrl}/u/${ofUnsubscribing()}`,
    unsubscribeToken: ofUnsubscribing,
  }
}
