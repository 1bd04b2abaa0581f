/**
 * What an address means to the listener for reports: one of our tokens under a host name of ours, an address that
 * reports come to, or the operator. Everything else is nobody (test/README.md "Attacks", A19). A token is judged before
 * any lookup, so guesses cost a MAC. Rejects when the store does not answer.
 */
import type { KeyRing } from '../../base/key-ring.ts'
import { domainToAscii } from '../../mail/address.ts'
import { readComplaintToken, readReturnPathToken } from '../../mail/message-token.ts'
import type { Store } from '../../store/store.ts'

export type InboundRecipient =
  | { kind: 'token'; messageId: string } // b-… and f-…: it names the message
  | { kind: 'unsubscribe'; token: string } // u-…
  | { kind: 'reports' } // of complaints and of DMARC: the mail itself must name the message
  | { kind: 'operator' } // postmaster and abuse

export interface RecipientParts {
  settings: {
    hostname: string
    inbound: { complaint_address: string }
    domains: { targets: { return_path: string }; dmarc_report_address: string }
  }
  store: Pick<Store, 'isReturnPath'>
  keyRing: KeyRing
  /** Whether a token for unsubscribing is genuine: asked at RCPT. */
  isUnsubscribeToken(token: string): boolean
}

/** RFC 5321 §4.5.1, RFC 2142 §4. */
const OPERATOR_NAMES = ['postmaster', 'abuse']
const OPERATOR: InboundRecipient = { kind: 'operator' }

export function createFindInboundRecipient(
  parts: RecipientParts,
): (address: string) => Promise<InboundRecipient | null> {
  const { keyRing, store } = parts
  const { hostname, inbound, domains } = parts.settings
  const reportAddresses = [inbound.complaint_address, domains.dmarc_report_address].map((text) => text.toLowerCase())
  const ownNames = [hostname, domains.targets.return_path].map((name) => name.toLowerCase())

  const named = (messageId: string | undefined): InboundRecipient | null =>
    messageId === undefined ? null : { kind: 'token', messageId }
  function readToken(localPart: string): InboundRecipient | null {
    const token = localPart.slice(2)
    switch (localPart.slice(0, 2)) {
      case 'b-':
        return named(readReturnPathToken(token, keyRing.key('bounce')))
      case 'f-':
        return named(readComplaintToken(token, keyRing.key('complaint')))
      case 'u-':
        return parts.isUnsubscribeToken(token) ? { kind: 'unsubscribe', token } : null
      default:
        return null
    }
  }

  return async (address) => {
    // RFC 5321 §4.1.1.3: without a domain it is the postmaster of this host.
    const [localPart = '', given = hostname, ...more] = address.toLowerCase().split('@')
    const domain = domainToAscii(given)
    if (domain === undefined || more.length > 0) return null
    if (reportAddresses.includes(`${localPart}@${domain}`)) return { kind: 'reports' }
    const recipient = OPERATOR_NAMES.includes(localPart) ? OPERATOR : readToken(localPart)
    if (recipient === null) return null
    return ownNames.includes(domain) || (await store.isReturnPath(domain)) ? recipient : null
  }
}
