/**
 * What an administrator sees of a server at work: one log line for each fact, without secrets; every metric that the
 * dashboard and the alerts name; and labels that do not grow with domains and recipients.
 */
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { getPriority } from 'node:os'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { startManyDestinations } from '../support/many-destinations.ts'
import { until } from '../support/until.ts'
import { webhookReceiver } from '../support/webhook-receiver.ts'

const PACKAGE_FILES = fileURLToPath(new URL('../../scripts/package', import.meta.url))
const MESSAGES = process.env['TEST_SCALE'] === 'full' ? 5_000 : 200
/** Label names, each with few values: from the configuration, or from lists in the code. */
const BOUNDED_LABELS = [
  'source',
  'code',
  'result',
  'pool',
  'ip',
  'provider',
  'class',
  'stage',
  'policy',
  'type',
  'reason',
  'why',
  'kind',
  'machine',
  'state',
  'list',
  'route',
  'method',
  'status',
  'check',
  'certificate',
  'thread',
  'version',
  'node',
  'cores',
  'le',
  'quantile',
  'space',
  'major',
  'minor',
  'patch',
]
/** Planted where they have to be given, and looked for where they must not be. */
const CANARIES = {
  body: 'canary-body-3f9a',
  variable: 'canary-variable-77b1',
  secret: 'canary-secret-55d2',
  subject: 'canary-subject-1c',
  attachment: Buffer.from('canary-attachment-8e').toString('base64'),
  metadata: 'canary-metadata-9a',
}
const DEADLINE = 120_000

t.setTimeout(600_000)

interface Line {
  msg: string
  [field: string]: unknown
}

async function metricsOf(url: string): Promise<string> {
  return (await fetch(url)).text()
}

/** Sum of the samples whose line begins so. */
function valueOf(text: string, start: string): number {
  const values = text
    .split('\n')
    .filter((line) => line.startsWith(start))
    .map((line) => Number(line.split(' ').at(-1)))
  return values.reduce((sum, value) => sum + value, 0)
}

function seriesOf(text: string, name: string): number {
  return text.split('\n').filter((line) => line.startsWith(`${name}{`)).length
}

/** Nice values of the threads of a process that the system shows under this name. */
function threadPriorities(processId: number, name: string): number[] {
  const tasks = `/proc/${processId}/task`
  return readdirSync(tasks)
    .filter((task) => readFileSync(`${tasks}/${task}/comm`, 'utf8').trim() === name)
    .map((task) => getPriority(Number(task)))
}

t.test('a batch of mail leaves one line for each fact, and its figures', async (t) => {
  const { server, api, key, domains, sink } = await startManyDestinations(t, {})
  const receiver = await webhookReceiver()
  t.teardown(() => receiver.close())
  const hook = { url: receiver.url, events: ['email.delivered'], secret: CANARIES.secret }
  t.equal((await api.post('/webhooks', hook)).status, 201)
  const recipients = Array.from({ length: MESSAGES }, (_, index) => ({
    to: `user${index}@${domains[index % domains.length]}`,
    name: CANARIES.variable,
  }))
  const { status, body } = await api.post('/email/batch', {
    from: 'news@acme.test',
    subject: `{{name}} ${CANARIES.subject}`,
    text: `{{name}} ${CANARIES.body}`,
    recipients,
    attachments: [{ name: 'a.txt', content: CANARIES.attachment }],
    metadata: { note: CANARIES.metadata },
  })
  t.equal(status, 200, JSON.stringify(body))
  await until('all have arrived', () => sink.arrivals.size === MESSAGES, DEADLINE)
  await until('all are told', () => receiver.requests.length >= MESSAGES, DEADLINE)
  await until(
    'as many connections are counted as are open',
    async () => valueOf(await metricsOf(server.metricsUrl), 'sternpost_smtp_connections') === sink.connections(),
    DEADLINE,
  )
  await until(
    'the last lines are there',
    () => server.log().filter(({ msg }) => msg === 'webhook attempt').length >= MESSAGES,
    DEADLINE,
  )
  const log = server.log() as unknown as Line[]
  const lines = (msg: string): Line[] => log.filter((line) => line.msg === msg)

  for (const [msg, field] of [
    ['message accepted', 'message_id'],
    ['message delivered', 'message_id'],
    ['webhook attempt', 'delivery_id'],
  ] as const) {
    t.equal(lines(msg).length, MESSAGES, `one line each: ${msg}`)
    t.equal(new Set(lines(msg).map((line) => line[field])).size, MESSAGES)
  }
  t.match(lines('message accepted')[0], {
    level: 'info',
    part: 'messages',
    time: /^\d{4}-.*Z$/,
    message_id: /^msg_/,
    batch_id: /^bat_/,
    domain: 'acme.test',
    pool: 'default',
    recipient: /^user\d+@d\d+\.test$/,
    source: 'batch',
    request_id: /^req_/,
    api_key: /^test …/,
  })
  t.match(lines('message delivered')[0], {
    part: 'delivery',
    message_id: /^msg_/,
    domain: 'acme.test',
    pool: 'default',
    recipient: /@/,
    ip: /^127\.0\.0\.1/,
    local_address: /^127\./,
    mx: /^mx\.d\d+\.test$/,
    remote_address: '127.0.0.1',
    attempt: 1,
    stage: 'dot',
    reply: /^250 /,
    ms: Number,
    outcome: 'delivered',
  })
  t.match(lines('webhook attempt')[0], { endpoint_id: /^wh_/, event_id: /^evt_/, delivery_id: /^whd_/, status: 200 })

  await t.test('no secret, body, variable or key is in the log', async (t) => {
    const text = log.map((line) => JSON.stringify(line)).join('\n')
    for (const [name, canary] of Object.entries({ ...CANARIES, key, plain: 'canary-attachment-8e' })) {
      t.notOk(text.includes(canary), name)
    }
    t.ok(text.includes('user1@d1.test'), 'the search finds what is there')
  })

  await t.test('what delivers gives way to what accepts', async (t) => {
    for (const [name, priority] of [
      ['delivery', 10],
      ['libuv-worker', 10],
      ['store', 0],
    ] as const) {
      const priorities = threadPriorities(server.processId, name)
      t.ok(priorities.length > 0, `${name} is there`)
      t.strictSame(new Set(priorities), new Set([priority + getPriority(server.processId)]), name)
    }
  })

  // Results are recorded with the round behind them.
  const text = await until(
    'nothing waits any more',
    async () => {
      const read = await metricsOf(server.metricsUrl)
      return valueOf(read, 'sternpost_webhook_queue') === 0 && read
    },
    DEADLINE,
  )
  await t.test('the figures are right', async (t) => {
    const expected: [start: string, value: number][] = [
      ['sternpost_messages_accepted_total{source="batch"}', MESSAGES],
      ['sternpost_deliveries_total{result="delivered"', MESSAGES],
      ['sternpost_delivery_attempt_seconds_count', MESSAGES],
      ['sternpost_delivery_latency_seconds_count{pool="default"}', MESSAGES],
      ['sternpost_smtp_replies_total{class="2",stage="dot"', MESSAGES],
      ['sternpost_webhook_deliveries_total{result="succeeded"}', MESSAGES],
      ['sternpost_webhook_attempt_seconds_count', MESSAGES],
      ['sternpost_queue_messages{state="waiting",pool="default"}', 0],
      ['sternpost_webhook_queue', 0],
      ['sternpost_ip_state{ip="127.0.0.11",state="warmed"}', 1],
      ['sternpost_config_last_reload_success', 1],
    ]
    for (const [start, value] of expected) t.equal(valueOf(text, start), value, start)
    for (const name of [
      'sternpost_database_bytes',
      'sternpost_disk_free_bytes',
      'sternpost_dns_lookup_seconds_count',
    ]) {
      t.ok(valueOf(text, name) > 0, name)
    }
    t.ok(seriesOf(text, 'sternpost_thread_event_loop_utilization') >= 2, 'the store and a delivery thread')
  })

  await t.test('what the dashboard and the alerts name is there', async (t) => {
    const there = new Set(text.match(/(?<=^# TYPE )\S+/gm))
    for (const file of ['grafana.json', 'alerts.yaml']) {
      const names = new Set(expressionsOf(file).match(/\b(?:sternpost|nodejs|process)_[a-z0-9_]+/g))
      t.ok(names.size > 10, `${file} names ${names.size}`)
      const isThere = (name: string): boolean => there.has(name) || there.has(name.replace(/_(bucket|sum|count)$/, ''))
      const missing = [...names].filter((name) => !isThere(name))
      t.same(missing, [], file)
    }
    const judged = spawnSync('promtool', ['check', 'rules', `${PACKAGE_FILES}/alerts.yaml`], { encoding: 'utf8' })
    if (judged.error !== undefined) t.comment('promtool is not installed: its check of the rules is left out')
    else t.equal(judged.status, 0, judged.stdout + judged.stderr)
  })

  await t.test('labels stay few, however many domains, recipients and paths there are', async (t) => {
    const names = new Set(text.match(/(?<=[{,])[a-z_]+(?==")/g))
    t.same(
      [...names].filter((name) => !BOUNDED_LABELS.includes(name)),
      [],
    )
    const before = text.split('\n').length
    await Promise.all(Array.from({ length: 50 }, (_, index) => fetch(`${server.baseUrl}/v1/${index}/no-such-path`)))
    await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        api.post('/email/send', { to: `more@d${index % 30}.test`, from: 'x@acme.test', subject: 'x', text: 'x' }),
      ),
    )
    await until('they have arrived', () => sink.arrivals.size >= MESSAGES + 30, DEADLINE)
    const after = (await metricsOf(server.metricsUrl)).split('\n').length
    t.ok(after - before < 100, `${after - before} more lines: of routes and statuses, not of names`)
    t.notMatch(text, /@|d\d+\.test|acme\.test|msg_/)
  })
})

/** Of the dashboard the expressions alone: its texts may name anything. */
function expressionsOf(file: string): string {
  const text = readFileSync(`${PACKAGE_FILES}/${file}`, 'utf8')
  const expressions = file.endsWith('.json')
    ? text.match(/"expr": ".*"|label_values\(.*?\)/g)
    : text.match(/expr:[^]*?(?=\n {8}\w+:)/g)
  return (expressions ?? []).join('\n')
}
