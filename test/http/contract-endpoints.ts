/**
 * The endpoints that http/README.md promises, written down by hand: the router, the OpenAPI document and this list must
 * say the same.
 */
export interface ContractEndpoint {
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  path: string
}

const list = (text: string): ContractEndpoint[] =>
  text
    .trim()
    .split('\n')
    .map((line) => {
      const [method, path = ''] = line.trim().split(' ')
      return { method: method as ContractEndpoint['method'], path }
    })

export const CONTRACT_ENDPOINTS: ContractEndpoint[] = list(`
    POST /email/send
    POST /email/batch
    POST /email/preview
    GET /email
    GET /email/{message_id}
    GET /email/{message_id}/content
    GET /email/{message_id}/events
    GET /email/{message_id}/explain
    GET /email/{message_id}/transcript
    POST /email/{message_id}/cancel
    POST /email/{message_id}/retry
    GET /email/batch/{batch_id}
    POST /email/batch/{batch_id}/cancel
    GET /stats
    POST /domains
    GET /domains
    GET /domains/{domain}
    PATCH /domains/{domain}
    DELETE /domains/{domain}
    POST /domains/{domain}/verify
    GET /domains/{domain}/zonefile
    POST /domains/{domain}/link
    GET /domains/{domain}/authentication
    POST /domains/{domain}/dkim/rotate
    POST /webhooks
    GET /webhooks
    GET /webhooks/{id}
    PATCH /webhooks/{id}
    DELETE /webhooks/{id}
    POST /webhooks/{id}/test
    GET /webhooks/{id}/deliveries
    GET /webhooks/{id}/deliveries/{whd}
    POST /webhooks/{id}/deliveries/{whd}/replay
    POST /webhooks/{id}/replay
    POST /webhooks/{id}/rotate-secret
    GET /webhooks/stream
    GET /suppressions
    POST /suppressions
    DELETE /suppressions/{email}
    POST /suppressions/import
    POST /keys
    GET /keys
    GET /keys/{id}
    PATCH /keys/{id}
    DELETE /keys/{id}
    GET /health
    GET /openapi.json
    GET /ips
    GET /ips/{ip}
    GET /ips/{ip}/stats
    GET /ips/{ip}/warmup
    POST /ips/{ip}/warmup
    POST /ips/{ip}/warmup/pause
    POST /ips/{ip}/warmup/resume
    POST /ips/{ip}/warmup/complete
    GET /ips/{ip}/warmup/forecast
`)

/** http/README.md "Events". */
export const EVENT_KINDS = [
  'email.delivered',
  'email.bounced',
  'email.complained',
  'email.opened',
  'email.clicked',
  'email.deferred',
  'email.suppressed',
  'email.unsubscribed',
  'email.canceled',
  'domain.verified',
  'domain.degraded',
  'ip.warmup.advanced',
  'ip.warmup.held',
  'ip.warmup.completed',
  'ip.blocklisted',
  'webhook.test',
]
