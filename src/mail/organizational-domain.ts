/**
 * Which part of a host name its owner registered, by the Public Suffix List (RFC 7489 §3.2). Private suffixes count:
 * `a.github.io` and `b.github.io` have two owners. Never throws; a name without a registrable part is its own answer.
 */
import { getDomain, getPublicSuffix } from 'tldts'

const OPTIONS = { allowPrivateDomains: true }

/** `mx1.mail.example.co.uk` -> `example.co.uk`; the name itself when there is none. */
export function organizationalDomain(hostName: string): string {
  return getDomain(hostName, OPTIONS) ?? hostName
}

/** True for names under which others register, such as `co.uk`. */
export function isPublicSuffix(name: string): boolean {
  return getPublicSuffix(name, OPTIONS) === name
}
