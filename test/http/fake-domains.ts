/**
 * Sending domains that a test of the routes can foresee: every name but unknown.com is one.
 */
import { ServiceError } from '../../src/base/errors.ts'
import type { HttpFeatures } from '../../src/http/exchange/features.ts'

/** `changes` gets what the routes hand on. */
export function fakeDomains(changes: unknown[]): HttpFeatures['domains'] {
  const known = (name: string) => {
    if (name === 'unknown.com') throw new ServiceError('not_found', `domain ${name}`)
    return fakeDomain(name)
  }
  return {
    async add(request) {
      changes.push(request)
      return { record: fakeDomain(request.name), isNew: request.name !== 'known.com' }
    },
    verify: async (name) => ({ record: known(name), isRepeated: name === 'again.com' }),
    find: async (name) => (name === 'unknown.com' ? null : fakeDomain(name)),
    async list(query) {
      changes.push(query)
      return { domains: [fakeDomain('acme.com')], next: query.after === null ? 'cursor' : null }
    },
    async update(name, change) {
      changes.push(change)
      return known(name)
    },
    queuedMessages: async (name) => (known(name).domain === name ? 12 : 0),
    async remove(name, options) {
      const { domain } = known(name)
      changes.push(options)
      return { domain, deleted: true, queued_messages: 12 }
    },
    async rotateDkim(name) {
      if (name === 'turning.com') throw new ServiceError('conflict', 'a rotation is under way')
      return known(name)
    },
    link: async (name) => ({ path: `${known(name).domain}/1795200000-mac`, expiresAt: 1_795_200_000_000 }),
    linked: async () => null,
    async authentication(name, query) {
      changes.push(query)
      return fakeAuthentication(known(name).domain, query)
    },
    zoneFile: async (name) => `; ${known(name).domain}\n`,
  }
}

export function fakeAuthentication(domain: string, { from, to }: { from: string; to: string }) {
  return {
    domain,
    from,
    to,
    policy: null,
    hint: null,
    dmarc: { reports: 0, reporters: [], messages: 0, passed: 0, failed: 0, sources: [], days: [] },
    tls: [],
  }
}

export function fakeDomain(domain: string) {
  return {
    domain,
    status: 'pending' as const,
    verified: false,
    can_send: false,
    created_at: 1,
    verified_at: null,
    last_checked_at: null,
    next_check_at: null,
    return_path: `bounces.${domain}`,
    tracking: { opens: true, clicks: true, domain: `t.${domain}`, tls: 'pending' as const },
    ip_pool: 'default',
    allow_subdomains: false,
    records: [],
  }
}
