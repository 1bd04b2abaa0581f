/**
 * Which message of ours a report is about: the token of its envelope recipient, else the first genuine one it repeats
 * (inbound/README.md "Whose mail a report is about" and "Complaints"). Addresses and ids without our MAC name nothing.
 * Pure; never throws.
 */
import type { KeyObject } from 'node:crypto'
import type { ReportReferences } from '../../mail/report/report-reading.ts'
import { readComplaintToken, readReturnPathToken } from '../../mail/return-path.ts'

interface NamedMessageOptions {
  tokenKeys: { bounce: KeyObject; complaint: KeyObject }
  /** Name of the header that repeats the complaint token, or null. */
  referenceHeader: string | null
}

/** Token headers of the returned message, in the order in which they are believed. */
const RETURNED_HEADERS = ['message-id', 'cfbl-feedback-id', 'return-path']
/** A header of ours is far shorter. */
const MOST_CHARACTERS = 1_000

// As many base32 characters as a token has, and no letter or digit around them but the `b-` and `f-` of addresses.
const TOKEN = /(?<![a-z0-9])[a-z2-7]{48}(?![a-z0-9])/gi

export function createFindNamedMessage(
  options: NamedMessageOptions,
): (references: ReportReferences) => string | undefined {
  const { tokenKeys, referenceHeader } = options
  const headers = [...(referenceHeader === null ? [] : [referenceHeader.toLowerCase()]), ...RETURNED_HEADERS]

  function messageIn(text: string): string | undefined {
    for (const [token] of text.slice(0, MOST_CHARACTERS).matchAll(TOKEN)) {
      const id = readReturnPathToken(token, tokenKeys.bounce) ?? readComplaintToken(token, tokenKeys.complaint)
      if (id !== undefined) return id
    }
    return undefined
  }

  return ({ originalEnvelopeId, returned }) => {
    const texts = [originalEnvelopeId ?? '', ...headers.map((name) => returned.get(name) ?? '')]
    return texts.map(messageIn).find((id) => id !== undefined)
  }
}
