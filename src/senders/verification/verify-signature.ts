/**
 * The verdict on the first DKIM signature of a mail, by mailauth and through the given DNS (RFC 6376 §6).
 *
 * `none` when the mail has no signature. Never throws for the content of a mail.
 */
import { dkimVerify } from 'mailauth'
import type { Resolver } from '../../network/resolver.ts'
import { asMailauthResolver } from './lookup-records.ts'

interface FirstSignature {
  /** pass, fail, neutral, none, temperror or permerror (RFC 8601 §2.7.1). */
  result: string
  domain: string | null
  selector: string | null
}

export async function verifySignature(mail: Buffer, resolver: Resolver): Promise<FirstSignature> {
  const { results } = await dkimVerify(mail, { resolver: asMailauthResolver(resolver) })
  const first = results[0]
  return {
    result: first?.status.result ?? 'none',
    domain: first?.signingDomain ?? null,
    selector: first?.selector ?? null,
  }
}
