/** Examples of the IP routes for the OpenAPI document: those of http/README.md "IPs". */

const WARMUP = {
  status: 'warming',
  curve: 'standard',
  stage: 3,
  stages: 30,
  day: 3,
  started_at: 1_795_046_400,
  daily_limit: 200,
  hourly_limit: 25,
  sent_today: 112,
  remaining_today: 88,
  resets_at: 1_795_305_600,
  percent: 6,
  estimated_completion: 1_797_638_400,
  target_daily_volume: 100_000,
  hold_reason: null,
  paused_until: null,
  providers: { gmail: { daily_limit: 100, sent_today: 61 }, outlook: { daily_limit: 70, sent_today: 30 } },
}

const IP = {
  ip: '203.0.113.10',
  pool: 'default',
  hostname: 'mta1.mail.example.net',
  status: 'warming',
  enabled: true,
  bindable: true,
  weight: 100,
  reason: null,
  changed_by: 'cli',
  changed_at: 1_795_046_400,
  until: null,
  ptr: { status: 'ok', value: 'mta1.mail.example.net', checked_at: 1_795_219_000 },
  blocklists: [{ zone: 'zen.spamhaus.org', listed: false, checked_at: 1_795_219_000 }],
  warmup: WARMUP,
}

const STARTED = {
  ip: '203.0.113.10',
  status: 'warming',
  warmup: {
    ...WARMUP,
    stage: 1,
    day: 1,
    started_at: 1_795_219_200,
    daily_limit: 50,
    hourly_limit: 7,
    sent_today: 0,
    remaining_today: 50,
    percent: 0,
    estimated_completion: 1_797_811_200,
    providers: {},
  },
}

const STATISTICS = {
  ip: '203.0.113.10',
  from: 1_794_614_400,
  to: 1_795_219_200,
  interval: 'day',
  totals: {
    messages: 18_137,
    attempts: 18_916,
    delivered: 17_904,
    deferred: 791,
    bounced: 221,
    bounced_hard: 160,
    bounced_soft: 31,
    bounced_block: 28,
    bounced_undetermined: 2,
    complained: 6,
    opened: 5_100,
    clicked: 840,
    queued_now: 12,
  },
  rates: { delivery: 0.9878, bounce: 0.0122, complaint: 0.0003, deferral: 0.0418 },
  by_provider: [{ isp: 'gmail', delivered: 9_100, deferred: 400, bounced: 60, complained: 0, p95_delivery_ms: 2_100 }],
  waiting: [{ isp: 'gmail', count: 12, reason: 'provider_share' }],
  series: [{ t: 1_794_614_400, delivered: 2_500, deferred: 90, bounced: 30, complained: 1 }],
}

const FORECAST = {
  ip: '203.0.113.10',
  recipients: 1_000,
  backlog: 0,
  start_at: 1_795_219_200,
  finish_at: 1_795_616_640,
  fits_max_defer: false,
  fits_lifetime: false,
  days: [
    { date: '2026-11-21', stage: 1, daily_limit: 50, planned: 50, limit: 'cap' },
    { date: '2026-11-22', stage: 2, daily_limit: 100, planned: 100, limit: 'cap' },
    { date: '2026-11-23', stage: 3, daily_limit: 200, planned: 200, limit: 'cap' },
    { date: '2026-11-24', stage: 4, daily_limit: 350, planned: 350, limit: 'cap' },
    { date: '2026-11-25', stage: 5, daily_limit: 500, planned: 300, limit: null },
  ],
}

const done = (data: object): object => ({ success: true, data })

export const IP_EXAMPLES = {
  'GET /ips': { response: { success: true, data: [IP], has_more: false, next_cursor: null } },
  'GET /ips/:ip': { response: done(IP) },
  'GET /ips/:ip/warmup': { response: done({ ip: IP.ip, status: IP.status, warmup: WARMUP }) },
  'GET /ips/:ip/stats': { response: done(STATISTICS) },
  'GET /ips/:ip/warmup/forecast': { response: done(FORECAST) },
  'POST /ips/:ip/warmup': { request: { curve: 'standard' }, response: done(STARTED) },
  'POST /ips/:ip/warmup/pause': {
    request: { reason: 'new content' },
    response: done({ ...STARTED, status: 'paused', warmup: { ...STARTED.warmup, status: 'paused' } }),
  },
  'POST /ips/:ip/warmup/resume': { request: {}, response: done(STARTED) },
  'POST /ips/:ip/warmup/complete': {
    request: {},
    response: done({ ...STARTED, status: 'warmed', warmup: { ...STARTED.warmup, status: 'warmed', percent: 100 } }),
  },
}
