/**
 * Examples for the OpenAPI document, by method and path, and by kind of event; the tests hold each against the schema
 * of its place.
 */
import type { WebhookEventKind } from '../../mail/event.ts'
import { IP_EXAMPLES } from './ip-examples.ts'

interface RouteExamples {
  /** Of the body. */
  request?: unknown
  /** Of a success. */
  response?: unknown
}

const MESSAGE_ID = 'msg_01kapg6t3vq8x2m5r7w9y4c6de'
const RETRIED_ID = 'msg_01kapg6t3vq8x2m5r7w9y4c6dk'
const BATCH_ID = 'bat_01kapg6t3vq8x2m5r7w9y4c6dg'
const ACCEPTED_AT = 1_795_219_200
const DELIVERED_AT = 1_795_219_207

const done = (data: object): object => ({ success: true, data })
const page = (...data: object[]): object => ({ success: true, data, has_more: false, next_cursor: null })

const SEND_REQUEST = {
  to: 'ada@example.net',
  from: 'Acme <orders@acme.com>',
  subject: 'Order {{no}}',
  html: '<p>Hi {{name}}</p>',
  text: 'Hi {{name}}',
  reply_to: 'help@acme.com',
  attachments: [{ name: 'receipt.txt', content: 'VGhhbmsgeW91Lgo=' }],
  variables: { no: 1042, name: 'Ada' },
}

const LISTED_MESSAGE = {
  message_id: MESSAGE_ID,
  batch_id: null,
  state: 'delivered',
  recipient: 'ada@gmail.com',
  from: 'orders@acme.com',
  subject: 'Order 1042',
  stream: 'transactional',
  tags: {},
  metadata: {},
  isp: 'gmail',
  ip: '203.0.113.10',
  ip_pool: 'default',
  created_at: ACCEPTED_AT,
  send_at: null,
  expires_at: 1_795_478_400,
  next_attempt_at: null,
  delivered_at: DELIVERED_AT,
  bounced_at: null,
  complained_at: null,
  bounce: null,
  opens: 1,
  clicks: 0,
  machine_opens: 1,
  machine_clicks: 0,
  uncertain: false,
  retry_of: null,
}

const ATTEMPT = {
  n: 1,
  at: 1_795_219_206,
  ip: '203.0.113.10',
  mx: 'gmail-smtp-in.l.google.com',
  tls: 'TLSv1.3',
  result: 'delivered',
  reply: '250 2.0.0 OK 1795219207 x12-20020',
  duration_ms: 840,
}

const UNSEEN = { ttl: 3600, status: 'pending', found: [], error: null, hint: null, checked_at: null }

const DOMAIN = {
  domain: 'acme.com',
  status: 'pending',
  verified: false,
  can_send: false,
  created_at: ACCEPTED_AT,
  verified_at: null,
  last_checked_at: null,
  next_check_at: 1_795_219_500,
  return_path: 'bounces.acme.com',
  tracking: { opens: true, clicks: true, domain: 't.acme.com', tls: 'pending' },
  ip_pool: 'default',
  allow_subdomains: false,
  records: [
    {
      purpose: 'return_path',
      required: true,
      type: 'CNAME',
      name: 'bounces.acme.com',
      host: 'bounces',
      value: 'rp.mail.example.net',
      ...UNSEEN,
    },
    {
      purpose: 'spf',
      required: true,
      via: 'return_path',
      type: 'TXT',
      name: 'bounces.acme.com',
      host: 'bounces',
      value: 'v=spf1 include:spf.mail.example.net -all',
      ...UNSEEN,
      evaluated: [{ ip: '203.0.113.10', result: 'none' }],
    },
  ],
}

const KEY = {
  id: 'key_01kapg6t3vq8x2m5r7w9y4c6d0',
  name: 'shop',
  mode: 'live',
  scopes: ['send', 'messages:read'],
  domains: ['acme.com'],
  allowed_ips: [],
  prefix: 'sk_live_',
  last4: '9f3a',
  created_at: ACCEPTED_AT,
  expires_at: null,
  last_used_at: null,
  revoked_at: null,
}

const SUPPRESSION = {
  id: 'sup_01kapg6t3vq8x2m5r7w9y4c6dq',
  email: 'x@acme.org',
  reason: 'hard_bounce',
  scope: 'all',
  message_id: 'msg_01kapg6t3vq8x2m5r7w9y4c6dn',
  created_at: DELIVERED_AT,
}

const WEBHOOK_ENDPOINT = {
  id: 'wh_01kapg6t3vq8x2m5r7w9y4c6dm',
  url: 'https://app.acme.com/hooks',
  events: ['email.delivered', 'email.bounced', 'email.complained', 'email.opened', 'email.clicked'],
  include: [],
  description: null,
  status: 'enabled',
  disabled_reason: null,
  secret_set: true,
  created_at: ACCEPTED_AT,
  updated_at: ACCEPTED_AT,
  last_success_at: null,
  last_failure_at: null,
  consecutive_failures: 0,
  pending: 0,
  dead_letters: 0,
}

const WEBHOOK_DELIVERY = {
  id: 'whd_01kapg6t3vq8x2m5r7w9y4c6dr',
  webhook_id: WEBHOOK_ENDPOINT.id,
  event_id: 'evt_01kapg6t3vq8x2m5r7w9y4c6ds',
  event: 'email.opened',
  message_id: MESSAGE_ID,
  status: 'succeeded',
  created_at: 1_795_220_000,
  next_attempt_at: null,
  ended_at: 1_795_220_000,
}

export const EXAMPLES: Record<string, RouteExamples> = {
  'POST /email/send': {
    request: SEND_REQUEST,
    response: { success: true, message_id: MESSAGE_ID, timestamp: ACCEPTED_AT },
  },
  'POST /email/preview': {
    request: SEND_REQUEST,
    response: done({
      subject: 'Order 1042',
      html: '<p>Hi Ada</p>',
      text: 'Hi Ada',
      mime_bytes: 1_874,
      headers: [{ name: 'Subject', value: 'Order 1042' }],
      links: [],
      warnings: [],
    }),
  },
  'POST /email/batch': {
    request: {
      from: 'news@acme.com',
      subject: 'Hello {{name}}',
      html: '<p>Hello {{name}}</p>',
      recipients: [
        { to: 'ada@example.net', name: 'Ada' },
        { to: 'bob@@x', name: 'Bob' },
        { to: 'carol@example.org', name: 'Carol' },
      ],
    },
    response: {
      success: true,
      batch_id: BATCH_ID,
      timestamp: ACCEPTED_AT,
      total: 3,
      accepted: 2,
      rejected: 1,
      results: [
        {
          index: 0,
          to: 'ada@example.net',
          success: true,
          message_id: 'msg_01kapg6t3vq8x2m5r7w9y4c6dh',
          status: 'queued',
        },
        {
          index: 1,
          to: 'bob@@x',
          success: false,
          error: {
            code: 'invalid_recipient',
            message: 'The recipient address is not valid.',
            details: "recipients[1].to: two '@' signs",
          },
        },
        {
          index: 2,
          to: 'carol@example.org',
          success: true,
          message_id: 'msg_01kapg6t3vq8x2m5r7w9y4c6dj',
          status: 'suppressed',
          reason: 'complaint',
        },
      ],
    },
  },
  'GET /email/batch/:batch_id': {
    response: done({
      batch_id: BATCH_ID,
      created_at: ACCEPTED_AT,
      from: 'news@acme.com',
      subject: 'Hello {{name}}',
      total: 3,
      accepted: 2,
      rejected: 1,
      states: {
        scheduled: 0,
        queued: 0,
        sending: 0,
        deferred: 0,
        delivered: 1,
        bounced: 0,
        expired: 0,
        canceled: 0,
        suppressed: 1,
      },
      opened: 1,
      clicked: 0,
      complained: 0,
    }),
  },
  'POST /email/batch/:batch_id/cancel': { response: done({ batch_id: BATCH_ID, canceled: 640, not_canceled: 360 }) },
  'GET /email': { response: page(LISTED_MESSAGE) },
  'GET /email/:message_id': { response: done({ ...LISTED_MESSAGE, attempts: [ATTEMPT] }) },
  'GET /email/:message_id/explain': {
    response: done({
      message_id: MESSAGE_ID,
      state: 'deferred',
      summary: 'Gmail asks this IP to slow down; the next attempt is in 14 minutes.',
      waiting_for: 'retry_delay',
      reply: '421-4.7.28 Gmail has detected an unusual rate of mail',
      category: 'rate',
      rule: 'google-unusual-rate',
      next_attempt_at: 1_795_220_100,
      checks: [
        { check: 'ptr', status: 'pass', seen: 'mta1.mail.example.net' },
        { check: 'spf', status: 'pass', seen: 'pass for 203.0.113.10' },
        { check: 'dkim', status: 'pass', seen: 'ps1a2b' },
        { check: 'dmarc', status: 'warn', seen: 'no record at _dmarc.acme.com' },
      ],
      similar: { isp: 'gmail', last_hour: { attempts: 120, deferred: 31 } },
      advice: ['Nothing to do: the rate for gmail was lowered at 1795219190.'],
    }),
  },
  'POST /email/:message_id/cancel': { response: done({ message_id: MESSAGE_ID, state: 'canceled' }) },
  'POST /email/:message_id/retry': {
    response: done({ message_id: RETRIED_ID, retry_of: MESSAGE_ID, state: 'queued' }),
  },
  'POST /domains': { request: { domain: 'acme.com' }, response: done(DOMAIN) },
  'GET /domains': { response: page({ ...DOMAIN, status: 'verified', verified: true, can_send: true }) },
  'GET /domains/:domain': { response: done(DOMAIN) },
  'PATCH /domains/:domain': { request: { tracking: { opens: false } }, response: done(DOMAIN) },
  'POST /domains/:domain/verify': { response: done(DOMAIN) },
  'DELETE /domains/:domain': { response: done({ domain: 'acme.com', deleted: true, queued_messages: 12 }) },
  ...IP_EXAMPLES,
  'POST /webhooks': {
    request: { url: 'https://app.acme.com/hooks', events: ['email.delivered', 'email.bounced'], secret: 'topsecret' },
    response: done(WEBHOOK_ENDPOINT),
  },
  'GET /webhooks': { response: page(WEBHOOK_ENDPOINT) },
  'GET /webhooks/:id': { response: done(WEBHOOK_ENDPOINT) },
  'PATCH /webhooks/:id': {
    request: { status: 'disabled' },
    response: done({ ...WEBHOOK_ENDPOINT, status: 'disabled', disabled_reason: 'manual' }),
  },
  'DELETE /webhooks/:id': { response: done({ id: WEBHOOK_ENDPOINT.id, deleted: true }) },
  'POST /webhooks/:id/test': {
    request: { event: 'email.bounced' },
    response: done({ ok: false, status: 204, duration_ms: 87, error: 'answered 204; only 200 counts', answer: '' }),
  },
  'POST /webhooks/:id/rotate-secret': {
    request: { grace_seconds: 86_400 },
    response: done({
      id: WEBHOOK_ENDPOINT.id,
      switch_at: 1_795_305_600,
      secret: 'whsec_2pQ7vX4kZ9mB1nT6rY8cW3dF5gH0jL2sA4eU6iO8aKx',
    }),
  },
  'GET /webhooks/:id/deliveries': { response: page({ ...WEBHOOK_DELIVERY, attempts: 1 }) },
  'GET /webhooks/:id/deliveries/:whd': {
    response: done({
      ...WEBHOOK_DELIVERY,
      body:
        '{"event":"email.opened","timestamp":1795220000,"data":{"message_id":"msg_01kapg6t3vq8x2m5r7w9y4c6de",' +
        '"recipient":"ada@gmail.com"}}',
      attempts: [{ n: 1, at: 1_795_220_000, status: 200, duration_ms: 42, error: null, answer: 'ok' }],
    }),
  },
  'POST /webhooks/:id/deliveries/:whd/replay': {
    response: done({
      ...WEBHOOK_DELIVERY,
      status: 'pending',
      next_attempt_at: 1_795_220_060,
      ended_at: null,
      attempts: 0,
    }),
  },
  'POST /webhooks/:id/replay': {
    request: { since: 1_795_133_600, status: 'failed', events: ['email.bounced'] },
    response: done({ queued: 12 }),
  },
  'POST /suppressions': {
    request: { email: 'x@acme.org', reason: 'manual', scope: 'all' },
    response: done({ ...SUPPRESSION, reason: 'manual', message_id: null }),
  },
  'GET /suppressions': { response: page(SUPPRESSION) },
  'DELETE /suppressions/:email': { response: done({ email: 'x@acme.org', deleted: 1 }) },
  'POST /suppressions/import': { request: 'email,reason,scope\nx@acme.org,manual,all\n' },
  'POST /keys': {
    request: { name: 'shop', mode: 'live', scopes: ['send', 'messages:read'], domains: ['acme.com'] },
    response: done({ ...KEY, key: 'sk_live_4Qm8ZtY1cVb7Xn2LsK5dWf9HjR3pGa6uEo0T9f3a' }),
  },
  'GET /keys': { response: page(KEY) },
  'GET /keys/:id': { response: done(KEY) },
  'PATCH /keys/:id': { request: { name: 'web shop' }, response: done({ ...KEY, name: 'web shop' }) },
  'DELETE /keys/:id': { response: done({ ...KEY, revoked_at: DELIVERED_AT }) },
  'GET /health': { response: done({ status: 'ok', queue_depth: 12, oldest_due_seconds: 3, db: 'ok', smtp_out: 'ok' }) },
}

const OPENED = { message_id: MESSAGE_ID, recipient: 'ada@gmail.com' }

export const WEBHOOK_EXAMPLES: Partial<Record<WebhookEventKind, object>> = {
  'email.delivered': { event: 'email.delivered', timestamp: DELIVERED_AT, data: { ...OPENED, isp: 'gmail' } },
  'email.bounced': {
    event: 'email.bounced',
    timestamp: DELIVERED_AT,
    data: {
      message_id: 'msg_01kapg6t3vq8x2m5r7w9y4c6dn',
      recipient: 'x@acme.org',
      bounce_type: 'hard',
      bounce_code: '5.1.1',
      bounce_description: '550 5.1.1 The email account that you tried to reach does not exist',
    },
  },
  'email.complained': {
    event: 'email.complained',
    timestamp: 1_795_220_000,
    data: { message_id: 'msg_01kapg6t3vq8x2m5r7w9y4c6dp', recipient: 'y@yahoo.com', isp: 'yahoo' },
  },
  'email.opened': { event: 'email.opened', timestamp: 1_795_220_000, data: OPENED },
  'email.clicked': {
    event: 'email.clicked',
    timestamp: 1_795_220_001,
    data: { ...OPENED, url: 'https://acme.com/o/1042' },
  },
}
