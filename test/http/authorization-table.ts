/**
 * Who may do what, written down by hand: each route with its scope and with what it is about. The rules of
 * http/README.md "What a key reaches" say for each kind of thing what a key of some kind gets; a route without a row
 * fails the test.
 */

/** What a route is about. */
export type About =
  | 'anyone' // no key is needed
  | 'message'
  | 'batch'
  | 'endpoint'
  | 'delivery'
  | 'suppression'
  | 'key'
  | 'domain'
  | 'ip'
  | 'server'
  | 'list' // of those within reach
  | 'list of ips'
  | 'new message'
  | 'new endpoint'
  | 'new suppression'
  | 'new key'
  | 'new domain'

/** Whose thing: of the domain that limited keys have, of another one, of the test side. */
export const RELATIONS = ['own', 'other', 'test'] as const
export type Relation = (typeof RELATIONS)[number]

export interface Row {
  scope: string | null
  about: About
  body?: unknown
  /** It takes the thing away: the next request gets another one. */
  isEnd?: true
  /** In the console no operator and no reader may use it. */
  isForOwners?: true
}

const TEXT = { subject: 'x', text: 'x' }

export const TABLE: Record<string, Row> = {
  'POST /email/send': { scope: 'send', about: 'new message', body: { ...TEXT, to: 'ada@example.com' } },
  'POST /email/batch': {
    scope: 'send',
    about: 'new message',
    body: { ...TEXT, recipients: [{ to: 'ada@example.com' }] },
  },
  'POST /email/preview': { scope: 'send', about: 'new message', body: { ...TEXT, to: 'ada@example.com' } },
  'GET /email': { scope: 'messages:read', about: 'list' },
  'GET /email/:message_id': { scope: 'messages:read', about: 'message' },
  'GET /email/:message_id/content': { scope: 'admin', about: 'message' },
  'GET /email/:message_id/events': { scope: 'messages:read', about: 'message' },
  'GET /email/:message_id/explain': { scope: 'messages:read', about: 'message' },
  'GET /email/:message_id/transcript': { scope: 'messages:read', about: 'message' },
  'POST /email/:message_id/cancel': { scope: 'send', about: 'message', isEnd: true },
  'POST /email/:message_id/retry': { scope: 'send', about: 'message', body: {} },
  'GET /email/batch/:batch_id': { scope: 'messages:read', about: 'batch' },
  'POST /email/batch/:batch_id/cancel': { scope: 'send', about: 'batch', isEnd: true },
  'POST /domains': { scope: 'domains', about: 'new domain' },
  'GET /domains': { scope: 'domains', about: 'list' },
  'GET /domains/:domain': { scope: 'domains', about: 'domain' },
  'PATCH /domains/:domain': { scope: 'domains', about: 'domain', body: { allow_subdomains: true } },
  'DELETE /domains/:domain': { scope: 'domains', about: 'domain', isEnd: true },
  'POST /domains/:domain/verify': { scope: 'domains', about: 'domain', body: {} },
  'GET /domains/:domain/zonefile': { scope: 'domains', about: 'domain' },
  'GET /domains/:domain/authentication': { scope: 'domains', about: 'domain' },
  'POST /domains/:domain/link': { scope: 'domains', about: 'domain', body: {} },
  'POST /domains/:domain/dkim/rotate': { scope: 'domains', about: 'domain', body: {} },
  'GET /ips': { scope: 'stats', about: 'list of ips' },
  'GET /ips/:ip': { scope: 'stats', about: 'ip' },
  'GET /ips/:ip/warmup': { scope: 'stats', about: 'ip' },
  'GET /ips/:ip/stats': { scope: 'stats', about: 'ip' },
  'GET /ips/:ip/warmup/forecast': { scope: 'stats', about: 'ip' },
  'POST /ips/:ip/warmup': { scope: 'ips', about: 'ip', body: {} },
  'POST /ips/:ip/warmup/pause': { scope: 'ips', about: 'ip', body: {} },
  'POST /ips/:ip/warmup/resume': { scope: 'ips', about: 'ip', body: {} },
  'POST /ips/:ip/warmup/complete': { scope: 'ips', about: 'ip', body: {} },
  'POST /webhooks': { scope: 'webhooks', about: 'new endpoint', body: { url: 'http://127.0.0.1:9/' } },
  'GET /webhooks': { scope: 'webhooks', about: 'list' },
  'GET /webhooks/:id': { scope: 'webhooks', about: 'endpoint' },
  'PATCH /webhooks/:id': { scope: 'webhooks', about: 'endpoint', body: { description: 'x' } },
  'DELETE /webhooks/:id': { scope: 'webhooks', about: 'endpoint', isEnd: true },
  'POST /webhooks/:id/test': { scope: 'webhooks', about: 'endpoint', body: {} },
  'POST /webhooks/:id/rotate-secret': { scope: 'webhooks', about: 'endpoint', body: { grace_seconds: 0 } },
  'GET /webhooks/:id/deliveries': { scope: 'webhooks', about: 'endpoint' },
  'GET /webhooks/:id/deliveries/:whd': { scope: 'webhooks', about: 'delivery' },
  'POST /webhooks/:id/deliveries/:whd/replay': { scope: 'webhooks', about: 'delivery', body: {} },
  'POST /webhooks/:id/replay': { scope: 'webhooks', about: 'endpoint', body: { since: 9e9 } },
  'GET /webhooks/stream': { scope: 'webhooks', about: 'list' },
  'GET /stats': { scope: 'stats', about: 'list' },
  'GET /suppressions': { scope: 'suppressions', about: 'list' },
  'POST /suppressions': { scope: 'suppressions', about: 'new suppression', body: { email: 'ada@example.com' } },
  'DELETE /suppressions/:email': { scope: 'suppressions', about: 'suppression', isEnd: true },
  'POST /suppressions/import': { scope: 'suppressions', about: 'list', body: 'email\n' },
  'POST /keys': { isForOwners: true, scope: 'admin', about: 'new key', body: { name: 'x', scopes: ['send'] } },
  'GET /keys': { isForOwners: true, scope: 'admin', about: 'list' },
  'GET /keys/:id': { isForOwners: true, scope: 'admin', about: 'key' },
  'PATCH /keys/:id': { isForOwners: true, scope: 'admin', about: 'key', body: { name: 'y' } },
  'DELETE /keys/:id': { isForOwners: true, scope: 'admin', about: 'key', isEnd: true },
  'GET /health': { scope: null, about: 'anyone' },
  'GET /openapi.json': { scope: null, about: 'anyone' },
  'GET /admin/queue': { scope: 'admin', about: 'server' },
  'POST /admin/queue/actions': { scope: 'admin', about: 'server', body: { action: 'hold', dry_run: true } },
  'GET /admin/paths': { scope: 'admin', about: 'server' },
  'POST /admin/paths/resume': { scope: 'admin', about: 'server', body: { dry_run: true } },
  'GET /admin/pools': { scope: 'admin', about: 'server' },
  'GET /admin/domains/:domain/route': { scope: 'admin', about: 'server' },
  'GET /admin/server': { scope: 'admin', about: 'server' },
  'POST /admin/log-level': { scope: 'admin', about: 'server', body: { level: 'info' } },
  'POST /admin/reload': { scope: 'admin', about: 'server', body: { dry_run: true } },
  'GET /admin/storage': { scope: 'admin', about: 'server' },
  'GET /admin/backups': { scope: 'admin', about: 'server' },
  'POST /admin/backups': { scope: 'admin', about: 'server', body: {} },
  'GET /admin/certificates': { scope: 'admin', about: 'server' },
  'POST /admin/certificates/:name/renew': { scope: 'admin', about: 'server', body: {} },
  'GET /admin/nodes': { scope: 'admin', about: 'server' },
  'POST /admin/nodes/:node_id/drain': { scope: 'admin', about: 'server', body: {} },
  'DELETE /admin/nodes/:node_id': { scope: 'admin', about: 'server', isEnd: true },
  'GET /admin/recipients/:address': { scope: 'admin', about: 'server' },
  'POST /admin/recipients/:address/erase': { scope: 'admin', about: 'server', body: {} },
  'GET /admin/unmatched-reports': { scope: 'admin', about: 'server' },
  'GET /admin/checks': { scope: 'admin', about: 'server' },
  'POST /admin/checks': { scope: 'admin', about: 'server', body: { checks: ['disk'] } },
  'POST /admin/ips/:ip/suspend': { scope: 'admin', about: 'server', body: {} },
  'POST /admin/ips/:ip/resume': { scope: 'admin', about: 'server', body: {} },
  'GET /admin/ips/:ip/audit': { scope: 'admin', about: 'server' },
  'GET /admin/ips/:ip/days': { scope: 'admin', about: 'server' },
  'POST /admin/people': { isForOwners: true, scope: 'admin', about: 'server', body: { name: 'ada', role: 'reader' } },
  'GET /admin/people': { isForOwners: true, scope: 'admin', about: 'server' },
  'PATCH /admin/people/:person_id': { isForOwners: true, scope: 'admin', about: 'server', body: { role: 'reader' } },
  'DELETE /admin/people/:person_id': { isForOwners: true, scope: 'admin', about: 'server', isEnd: true },
  'GET /admin/people/:person_id/passkeys': { isForOwners: true, scope: 'admin', about: 'server' },
  'DELETE /admin/people/:person_id/passkeys': { isForOwners: true, scope: 'admin', about: 'server' },
  'GET /admin/sessions': { isForOwners: true, scope: 'admin', about: 'server' },
  'POST /admin/sessions/:session_id/end': { isForOwners: true, scope: 'admin', about: 'server', isEnd: true },
  'GET /admin/audit': { isForOwners: true, scope: 'admin', about: 'server' },
}

/** Who asks. */
export interface Asker {
  name: string
  /** null: not let in at all. */
  scope: string | null
  isTest: boolean
  /** Only for the domain of what is its own. */
  isLimited: boolean
  /** A person in the console. */
  role?: 'owner' | 'operator' | 'reader'
}

/** Whether it is about no thing of a domain: whose thing it is makes no difference. */
export function isOfNobody({ about }: Row): boolean {
  return ['anyone', 'list', 'ip', 'list of ips', 'server'].includes(about)
}

export type Verdict = 'ok' | 'unauthorized' | 'forbidden' | 'not_found' | 'invalid_request'

export function verdictOn(route: string, row: Row, asker: Asker, relation: Relation): Verdict {
  if (row.about === 'anyone') return 'ok'
  if (asker.role === undefined) return verdictOnKey(row, asker, relation)
  const isReading = route.startsWith('GET ')
  const isForbidden = asker.role !== 'owner' && (row.isForOwners === true || (asker.role === 'reader' && !isReading))
  if (isForbidden) return 'forbidden'
  // People see both sides; the suppression list that they change is the live one.
  return row.about === 'suppression' && relation === 'test' ? 'not_found' : 'ok'
}

function verdictOnKey({ scope, about }: Row, asker: Asker, relation: Relation): Verdict {
  if (asker.scope === null) return 'unauthorized'
  if (asker.scope !== 'admin' && asker.scope !== scope) return 'forbidden'
  const isOther = asker.isLimited && relation === 'other'
  switch (about) {
    case 'anyone':
    case 'list':
      return 'ok'
    case 'message':
    case 'batch':
    case 'endpoint':
    case 'delivery':
    case 'suppression':
      return isOther || asker.isTest !== (relation === 'test') ? 'not_found' : 'ok'
    case 'key':
      return isOther || (asker.isTest && relation !== 'test') ? 'not_found' : 'ok'
    case 'new message':
      return isOther ? 'forbidden' : 'ok'
    case 'new suppression':
      return isOther ? 'invalid_request' : 'ok'
    case 'new endpoint':
      return isOther || asker.isTest !== (relation === 'test') ? 'forbidden' : 'ok'
    case 'new key':
      return isOther || (asker.isTest && relation !== 'test') ? 'forbidden' : 'ok'
    case 'new domain':
      return asker.isTest || isOther ? 'forbidden' : 'ok'
    case 'domain':
      return asker.isTest ? 'not_found' : isOther ? 'forbidden' : 'ok'
    case 'ip':
      return asker.isTest ? 'not_found' : asker.isLimited ? 'forbidden' : 'ok'
    case 'list of ips':
      return asker.isLimited && !asker.isTest ? 'forbidden' : 'ok'
    case 'server':
      return asker.isTest || asker.isLimited ? 'forbidden' : 'ok'
  }
}
