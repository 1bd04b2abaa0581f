/**
 * The first domain and the first key, over the admin socket of the server that now runs. What is there stays.
 *
 * The errors of the server are passed on.
 */
import type { DomainView } from '../../senders/domain-view.ts'
import { callServer, listFromServer, textFromServer } from '../shared/api-client.ts'
import type { ServerAddress } from '../shared/server-address.ts'
import { readAnswer } from '../shared/verb.ts'
import type { SetupNotes } from './notes.ts'

export interface Introduced {
  domain: { view: DomainView; zone: string; isNew: boolean } | null
  /** null: there is one already. */
  key: string | null
}

const KEY_NAME = 'setup'

export async function introduce(
  server: ServerAddress,
  { hostname, domain }: { hostname: string; domain: string | null },
  notes: SetupNotes,
): Promise<Introduced> {
  const keys = await listFromServer(server, '/v1/keys')
  const hasKey = keys.some((key) => readAnswer<{ revoked_at: number | null }>(key, 'revoked_at').revoked_at === null)
  const added = domain === null ? null : await addDomain(server, domain, hostname)
  if (added !== null) notes.say(added.isNew ? `added     domain ${domain}` : `kept      domain ${domain}`)
  if (hasKey) {
    notes.say('kept      the API keys; another one: sternpost key create --name shop')
    return { domain: added, key: null }
  }
  const body = { name: KEY_NAME, mode: 'live', scopes: ['send'], domains: [], allowed_ips: [], expires_at: null }
  const made = await callServer(server, { method: 'POST', path: '/v1/keys', body })
  return { domain: added, key: readAnswer<{ key: string }>(made, 'key').key }
}

async function addDomain(server: ServerAddress, domain: string, hostname: string): Promise<Introduced['domain']> {
  const path = `/v1/domains/${encodeURIComponent(domain)}`
  const known = await listFromServer(server, '/v1/domains', { status: 'all' })
  const isNew = !known.some((each) => readAnswer<DomainView>(each, 'domain').domain === domain)
  // So that alerts can come from the name of the server.
  const body = { domain, allow_subdomains: hostname.endsWith(`.${domain}`) }
  if (isNew) await callServer(server, { method: 'POST', path: '/v1/domains', body })
  const view = readAnswer<DomainView>(await callServer(server, { method: 'GET', path }), 'domain', 'status', 'records')
  return { view, isNew, zone: await textFromServer(server, `${path}/zonefile`) }
}
