/** Every kind of mistake: where it points, what it says, what it suggests. */
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { ConfigurationError, type Mistake } from '../../src/base/errors.ts'
import { readAdminSocket } from '../../src/config/read-parts.ts'
import { explainMistakes } from '../../src/config/source/explain-mistake.ts'
import { readFolder } from '../../src/config/source/read-folder.ts'
import { shownSettings } from '../../src/config/source/setting-docs.ts'
import { FIXTURES, folderWith, load, mistakesIn, overrides, SHIPPED } from './folders.ts'

const NOBODY = 65_534

/** `sternpost.yaml:3:7: dns.timeout: what is wrong`, with the suggestion behind an arrow. */
function lineOf({ file, line, column, path, message, suggestion }: Mistake, folder: string): string {
  const name = file.startsWith(folder) ? file.slice(folder.length + 1) : file
  const place = `${name}:${line}:${column}: ${path === '' ? '' : `${path}: `}`
  return `${place}${message}${suggestion === null ? '' : ` -> ${suggestion}`}`
}

/** The errors of a folder in which only this text is not shipped. */
function errorsOf(t: Parameters<typeof folderWith>[0], file: string, text: string | Buffer): string[] {
  const { 'listen.http': http, 'listen.submission': submission, ...settings } = overrides(t)
  const folder = folderWith(t, { [file]: text })
  // A sternpost.yaml under test has doors of its own; the shipped one needs a certificate for its doors.
  const listeners = file === 'sternpost.yaml' ? {} : { 'listen.http': http, 'listen.submission': submission }
  const whole = { ...settings, ...listeners }
  // folderWith() took the folder with the key away, and what is asked for here is the rest.
  return mistakesIn({ folder, overrides: whole, neededSecrets: 'none' })
    .filter(({ severity }) => severity === 'error')
    .map((mistake) => lineOf(mistake, folder))
}

const SERVER = 'version: 1\nhostname: mx.example.net\nlisten: { http: [], submission: [] }\n'
const POOLS = 'version: 1\ndefault_pool: a\npools:\n  a:\n    ips: [{ address: 203.0.113.9, hostname: a.example }]\n'

const ONE_VALUE: [text: string, expected: string][] = [
  ['delivery: { drain: 45 }', '4:20: delivery.drain: 45 has no unit; write 45s -> 45s'],
  [
    // Who takes the first unit that is proposed for days would lose what the days are for.
    'retention: { messages: 90 }',
    '4:24: retention.messages: 90 has no unit; write which is meant: 90s, 90m, 90h, 90d',
  ],
  ['retention: { transcripts: 0 }', '4:27: retention.transcripts: 0 has no unit; write 0s -> 0s'],
  [
    'dns: { timeout: 1h30m }',
    '4:17: dns.timeout: "1h30m" is not a duration; write for example 250ms, 30s, 15m, 2h or 1d',
  ],
  ['delivery: { drain: 90s }', '4:20: delivery.drain: "90s" is too long; the most is 1m -> 1m'],
  [
    'delivery: { streams: { bulk: { lifetime: 1m } } }',
    '4:42: delivery.streams.bulk.lifetime: "1m" is too short; the least is 5m -> 5m',
  ],
  ['http: { max_body: 40MB }', '4:19: http.max_body: "40MB" is not a size; write 40MiB -> 40MiB'],
  ['http: { max_body: 1GiB }', '4:19: http.max_body: "1GiB" is too large; the most is 100MiB -> 100MiB'],
  ['http: { max_body: 1024 }', '4:19: http.max_body: 1024 has no unit; write which is meant: 1024B, 1024KiB'],
  [
    'retention: { budget: 20 }',
    '4:22: retention.budget: 20 has no unit; write which is meant: 20KiB, 20MiB, 20GiB, 20TiB',
  ],
  ['api: { requests: 200 }', '4:18: api.requests: 200 has no unit; write 200/second or 200/minute -> 200/second'],
  [
    'submission: { auth_failures: 0 }',
    '4:30: submission.auth_failures: 0 has no unit; write 0/second or 0/minute -> 0/second',
  ],
  [
    'submission: { auth_failures: 0/minute }',
    '4:30: submission.auth_failures: "0/minute" would send nothing; the least is 1/day -> 1/day',
  ],
  ['delivery: { retry_jitter: 60% }', '4:27: delivery.retry_jitter: "60%" is not between 0 and 0.5'],
  ['delivery: { retry: [] }', '4:20: delivery.retry: too few items; at least 1'],
  ['delivery: { retry: 5m }', '4:20: delivery.retry: "5m" is not a list'],
  ['delivery: { threads: 17 }', '4:22: delivery.threads: 17 is not auto or a number of threads from 1 to 16'],
  ['delivery: { tls: always }', '4:18: delivery.tls: "always" is not one of opportunistic, required'],
  ['delivery: { tls: { min: required } }', '4:18: delivery.tls: a map is not one of opportunistic, required'],
  ['log: { level: [{}] }', '4:15: log.level: a list is not one of debug, info, warn, error'],
  ['tracking: { opens: {} }', '4:20: tracking.opens: a map is not true or false'],
  ['tracking: { opens: yes }', '4:20: tracking.opens: "yes" is not true or false; write true -> true'],
  ['tracking: { opens: "False" }', '4:20: tracking.opens: "False" is not true or false; write false -> false'],
  ['dns: { tries: "2" }', '4:15: dns.tries: "2" is a text; write 2 without quotes -> 2'],
  ['dns:', '4:5: dns: an empty value is not a map of keys and values'],
  ['dns: { tries: 1.5 }', '4:15: dns.tries: 1.5 is not a whole number'],
  ['api: { batch_recipients: 5001 }', '4:26: api.batch_recipients: 5001 is too large; the most is 5000 -> 5000'],
  [
    'dns: { servers: [192.0.2.1:99999] }',
    '4:18: dns.servers[0]: "192.0.2.1:99999" is not an IP address or an IP address with a port',
  ],
  [
    'dns: { validating_resolver: 192.0.2.1 }',
    '4:29: dns.validating_resolver: 192.0.2.1 is not loopback: the answer "validated" is worth nothing over a network',
  ],
  [
    'http: { trusted_proxies: [10.0.0.0/33] }',
    '4:27: http.trusted_proxies[0]: "10.0.0.0/33" is not a network; write for example 10.0.0.0/8 or 2001:db8::/32',
  ],
  ['domains: { targets: { spf: spf_a.example } }', '4:28: domains.targets.spf: "spf_a.example" is not a host name'],
  [
    'domains: { targets: { spf: 192.0.2.1 } }',
    '4:28: domains.targets.spf: "192.0.2.1" is an IP address; a host name is needed here',
  ],
  ['operator: { email: root }', '4:20: operator.email: "root" is not an email address'],
  [
    'operator: { webhook: ftp://a.example }',
    '4:22: operator.webhook: "ftp://a.example" is not a URL; write for example https://mail.example.com',
  ],
  ['data_dir: var', '4:11: data_dir: "var" is not an absolute path; it must begin with /'],
  ['node_id: Node.1', '4:10: node_id: "Node.1" is not a node id: only a-z, 0-9 and hyphens'],
  ['backup: { schedule: "61 3 * * *" }', '4:21: backup.schedule: "61 3 * * *": "61" is not a minute (0 to 59)'],
  ['backup: { schedule: "5/10 3 * * *" }', '4:21: backup.schedule: "5/10 3 * * *": "5/10" is not a minute (0 to 59)'],
  ...['31 4,6,9,11', '30,31 2'].map((days): [string, string] => [
    `backup: { schedule: "0 3 ${days} *" }`,
    `4:21: backup.schedule: "0 3 ${days} *" never comes round: no month in it has such a day`,
  ]),
  ['backup: { schedule: daily }', '4:21: backup.schedule: "daily" is not a cron schedule of five fields'],
  ['metrics: { token: abc }', '4:19: metrics.token: a secret must be { file: … } or { credential: … }, not a string'],
  [
    'metrics: { token: { credential: ../key } }',
    '4:19: metrics.token: a secret must be { file: … } or ' +
      '{ credential: … }, with an absolute path or the name of a credential',
  ],
  ['dns: { tmieout: 5s }', '4:8: dns: unknown key "tmieout"; did you mean "timeout"? -> timeout'],
  ['lsiten: {}', '4:1: unknown key "lsiten"; did you mean "listen"? -> listen'],
  ['xyz: {}', '4:1: unknown key "xyz"'],
  [
    'delivery: { lease: 12m }',
    '4:20: delivery.lease: 12m is too short; it must be above 12m (timeouts.final_dot and 2m)',
  ],
  ['api: { recipients_burst: 999 }', '4:26: api.recipients_burst: 999 is below batch_recipients (1000) -> 1000'],
  [
    'retention: { budget: 0B }',
    '4:22: retention.budget: below 4MiB all that has ended would go at once; null is no budget -> null',
  ],
  [
    'public_url: https://mail.example.com/?a=b',
    '4:13: public_url: "https://mail.example.com/?a=b" must end before ? and #: paths are put behind it',
  ],
  ['storage: { engine: postgres }', '4:20: storage.engine: postgres needs storage.url'],
  [
    'storage: { engine: postgres, url: "postgres://a:secret@db/mail" }',
    '4:35: storage.url: a secret must be { file: … } or { credential: … }; a URL that holds a password is one',
  ],
  [
    'storage: { engine: postgres, url: "postgres://db/mail?password=secret" }',
    '4:35: storage.url: a secret must be { file: … } or { credential: … }; a URL that holds a password is one',
  ],
  [
    'storage: { engine: postgres, url: mysql://db/mail }',
    '4:35: storage.url: this is not the URL of a database; write for example postgres://sternpost@db.example.com/sternpost',
  ],
  [
    'storage: { engine: postgres, url: postgres://db }',
    '4:35: storage.url: the URL names no database; write for example postgres://sternpost@db.example.com/sternpost',
  ],
  ...['postgres://12/34@db/mail', 'postgres://db/mail#4', 'postgres://p%x@db/mail'].map((url): [string, string] => [
    `storage: { engine: postgres, url: "${url}" }`,
    '4:35: storage.url: the URL cannot be read: % / ? # @ : in a name or a password are written %25 %2F %3F %23 %40 %3A',
  ]),
  [
    'storage: { engine: postgres, url: "postgres://one,two/mail?target_session_attrs=any" }',
    '4:35: storage.url: target_session_attrs must be read-write',
  ],
  [
    'storage: { engine: postgres, url: postgres://db/mail?sslmode=prefer }',
    '4:35: storage.url: sslmode must be one of disable, require, verify-ca, verify-full',
  ],
  [
    'storage: { engine: postgres, url: postgres://db/mail?sslmode=verify-ca }',
    '4:35: storage.url: sslmode=verify-ca needs sslrootcert',
  ],
  [
    'storage: { engine: postgres, url: postgres://db/mail?sslrootcert=/nowhere/ca.pem }',
    "4:35: storage.url: sslrootcert: ENOENT: no such file or directory, open '/nowhere/ca.pem'",
  ],
  [
    'storage: { engine: postgres, url: postgres://db/mail?pipeline=false }',
    '4:35: storage.url: the URL has the parameter pipeline; known are host, port, target_session_attrs, sslmode, sslrootcert, sslcert, sslkey',
  ],
  [
    'storage: { engine: postgres, url: postgres:///mail }\nretention: { budget: 1GiB }',
    '5:22: retention.budget: what goes makes a PostgreSQL database no smaller: lower the times -> null',
  ],
]

t.test('a wrong value is told with its place, its path and what to write', async (t) => {
  for (const [text, expected] of ONE_VALUE) {
    t.strictSame(errorsOf(t, 'sternpost.yaml', `${SERVER}${text}\n`), [`sternpost.yaml:${expected}`], text)
  }
})

t.test('doors that cannot open, or would be open to the network, are errors', async (t) => {
  const door = (text: string): string[] =>
    errorsOf(t, 'sternpost.yaml', `version: 1\nhostname: a.example\nlisten:\n  ${text}\n`)
  t.strictSame(door('{ http: [], submission: [{ address: "*", port: 587, tls: none }] }'), [
    'sternpost.yaml:4:60: listen.submission[0].tls: keys would cross the network in plain text: tls: none is for ' +
      'loopback addresses alone -> starttls',
  ])
  t.strictSame(door('{ http: [], submission: [], metrics: { address: "*", port: 9464 } }'), [
    'sternpost.yaml:4:51: listen.metrics.address: an address that is not loopback needs metrics.token',
  ])
  t.strictSame(door('{ http: [{ address: "*", port: 443, tls: true, serve: [api] }], submission: [] }'), [
    'sternpost.yaml:4:44: listen.http[0].tls: a TLS listener needs a certificate: name one in tls.certificates, ' +
      'or set tls.acme',
  ])
  t.strictSame(door('{ http: [], submission: [{ address: "*", port: 587, tls: starttls }] }'), [
    'sternpost.yaml:4:60: listen.submission[0].tls: a TLS listener needs a certificate: name one in tls.certificates, ' +
      'or set tls.acme',
  ])
  t.strictSame(door('{ http: [], submission: [{ address: 127.0.0.1, port: 587, tls: none }] }'), [])
  const twice = '{ address: 127.0.0.1, port: 587, tls: none }'
  t.strictSame(door(`{ http: [], submission: [${twice}], metrics: { address: 127.0.0.1, port: 587 } }`), [
    'sternpost.yaml:4:112: listen.metrics.port: 127.0.0.1 port 587 is already that of listen.submission[0]',
  ])
  t.strictSame(door(`{ http: [], submission: [], admin_socket: /${'a'.repeat(107)} }`), [
    `sternpost.yaml:4:45: listen.admin_socket: "/${'a'.repeat(59)}..." is too long for a socket: at most 107 bytes`,
  ])
})

t.test('a door without TLS that others reach has no console, and shows keys unless a proxy is named', async (t) => {
  const warned = (address: string, more = ''): string[] => {
    const door = `{ address: ${address}, port: 8080, tls: false, serve: [api, console] }`
    const listen = `listen: { http: [${door}], submission: [], inbound: [] }`
    const folder = folderWith(t, {
      'sternpost.yaml': `version: 1\nhostname: a.example\n${listen}\n${more}\n`,
      'pools.yaml': POOLS,
    })
    return load({ folder, neededSecrets: 'none' })
      .warnings.filter(({ path }) => path.startsWith('listen.http'))
      .map(({ path, message }) => `${path}: ${message.slice(0, 19)}`)
  }
  const [keys, noConsole] = ['listen.http[0].serve: API keys cross the ', 'listen.http[0].serve: no console is serve']
  t.strictSame(warned('10.0.0.1'), [keys, noConsole])
  t.strictSame(warned('"*"', 'http: { trusted_proxies: [10.0.0.2] }'), [noConsole])
  t.strictSame(warned('"*"', 'http: { trusted_proxies: [10.0.0.2] }\nconsole: { enabled: false }'), [])
  t.strictSame(warned('127.0.0.1'), [])
})

const YAML: [text: string | Buffer, expected: string[]][] = [
  ['dns:\n\ttimeout: 5s\n', ['5:1: a tab cannot indent YAML; use spaces']],
  [
    'dns: [1\nlog: 5\nunknown: 1\n',
    ['5:1: syntax error: Flow sequence in block collection must be sufficiently ' + 'indented and end with a ]'],
  ],
  ['dns: {}\ndns: {}\n', ['5:1: this key is here twice; keep one of the two']],
  [
    'dns: &a {}\nlog: *a\n',
    ['4:6: an anchor (&a) is not taken; write the value out', '5:6: an alias (*a) is not taken; write the value out'],
  ],
  ['dns: !map {}\n', ['4:6: a tag is not taken; write the plain value']],
  ['dns: !!map {}\n', ['4:7: a tag is not taken; write the plain value']],
  ['dns: { <<: {} }\n', ['4:8: a merge key (<<) is not taken; write the keys out']],
  ['__proto__: {}\n', ['4:1: the name "__proto__" cannot be used']],
  ['---\ndns: {}\n', ['4:1: a second document begins here; a file holds one']],
  ['? [a]\n: 1\n', ['4:3: a key must be plain text']],
  [Buffer.from(`${SERVER}log: \xff\n`, 'latin1'), ['4:1: this line is not UTF-8 text; save the file as UTF-8']],
  [Buffer.from(SERVER, 'utf16le'), ['1:1: this is not plain text, as of UTF-16; save the file as UTF-8']],
  [
    'dns:{}\nlog: {}\n',
    [
      '4:1: syntax error: Implicit keys need to be on a single line; a line is `key: value`, with a space behind the colon',
    ],
  ],
  [
    'dns: { tries: 2 timeout: 5s }\n',
    [
      '4:15: syntax error: Block collections are not allowed within flow collections; inside { } and [ ] a comma stands ' +
        'between two items',
    ],
  ],
  [
    'dns: tries: 2\n',
    [
      '4:6: syntax error: Nested mappings are not allowed in compact mappings; a value with a colon and a space in it ' +
        'belongs into quotes',
    ],
  ],
  [Buffer.alloc(2 ** 20 + 1, '#'), ['1:1: the file is larger than 1 MiB']],
  [Buffer.from('- a\n'), ['1:1: the file must hold a map of keys and values']],
  [Buffer.from('%YAML 1.1\n---\nversion: 1\n'), ['1:1: a %YAML line is not taken']],
]

t.test('YAML that is refused is told with its line and column', async (t) => {
  for (const [text, expected] of YAML) {
    const content = typeof text === 'string' ? `${SERVER}${text}` : text
    t.strictSame(
      errorsOf(t, 'sternpost.yaml', content),
      expected.map((line) => `sternpost.yaml:${line}`),
    )
  }
})

t.test('YAML 1.2: no, on and 12:30 are texts', async (t) => {
  t.strictSame(errorsOf(t, 'sternpost.yaml', `${SERVER}tracking: { opens: on }\nlog: { level: 12:30 }\n`), [
    'sternpost.yaml:4:20: tracking.opens: "on" is not true or false; write true -> true',
    'sternpost.yaml:5:15: log.level: "12:30" is not one of debug, info, warn, error',
  ])
})

const POOL_MISTAKES: [text: string, expected: string[]][] = [
  [
    'version: 1\ndefault_pool: a\npools: { a: { ips: [{ address: 192.0.2.1 }] } }\n',
    ['3:21: pools.a.ips[0]: the key "hostname" is missing'],
  ],
  ['default_pool: a\npools: { a: {} }\n', ['1:1: the key "version" is missing']],
  ['version: 2\ndefault_pool: a\npools: { a: {} }\n', ['1:10: version: 2 is not one of 1']],
  [POOLS.replace('default_pool: a', 'default_pool: aa'), ['2:15: default_pool: no pool "aa"; did you mean "a"? -> a']],
  [
    POOLS.replace('default_pool: a', 'default_pool: 2026').replace('  a:', '  2026:'),
    ['2:15: default_pool: 2026 is not a text; put the pool name into quotes'],
  ],
  [
    POOLS.replace('203.0.113.9', '203.0.113.9/29'),
    ['5:22: pools.a.ips[0].address: "203.0.113.9/29" is not an IPv4 or IPv6 address; write it without the mask'],
  ],
  [`${POOLS}  Bulk: {}\n`, ['6:3: pools.Bulk: "Bulk" is not a pool name: only a-z, 0-9 and hyphens, at most 40']],
  [`${POOLS}    overflow_pool: a\n`, ['6:20: pools.a.overflow_pool: overflow goes in a circle: a -> a']],
  [
    `${POOLS}    overflow_pool: b\n  b: { overflow_pool: c, ips: [{ address: 203.0.113.10, hostname: b.example }] }\n` +
      '  c: { overflow_pool: b, ips: [{ address: 203.0.113.11, hostname: c.example }] }\n',
    ['7:23: pools.b.overflow_pool: overflow goes in a circle: b -> c -> b'],
  ],
  [
    `${POOLS}  b: {}\n  c: { ips: [] }\n`,
    [
      '6:3: pools.b: this pool has no IPs: nothing could be sent from it',
      '7:3: pools.c: this pool has no IPs: nothing could be sent from it',
    ],
  ],
  [
    `${POOLS}    limits: { gogle: { connections: 1 } }\n`,
    ['6:15: pools.a.limits.gogle: no provider "gogle"; did you mean "google"? -> google'],
  ],
  [
    POOLS.replace('a.example', 'a.example, curve: fats'),
    ['5:63: pools.a.ips[0].curve: no curve "fats"; did you mean "fast"? -> fast'],
  ],
  [
    `${POOLS}  b: { ips: [{ address: "::ffff:203.0.113.9", hostname: b.example }] }\n`,
    ['6:25: pools.b.ips[0].address: 203.0.113.9 is already in pool "a" (pools.yaml:5:22)'],
  ],
]

t.test('mistakes between pools, and to other files, are told at the name', async (t) => {
  for (const [text, expected] of POOL_MISTAKES) {
    t.strictSame(
      errorsOf(t, 'pools.yaml', text),
      expected.map((line) => `pools.yaml:${line}`),
      text,
    )
  }
})

t.test('a name that is nearly that of a file is told, and that of another file is not', (t) => {
  const others = { 'pools.yml': POOLS, 'pool.d/20-a.yaml': '', 'compose.yaml': '', 'pools.yaml~': POOLS }
  const settings = { overrides: overrides(t), neededSecrets: 'none' } as const
  const folder = folderWith(t, { 'pools.yaml': POOLS, ...others })
  const mistakes = mistakesIn({ folder, ...settings }).filter(({ message }) => message.startsWith('is not read'))
  t.strictSame(
    mistakes.map((mistake) => lineOf(mistake, folder)),
    ['pool.d:1:1: is not read; did you mean "pools.d"?', 'pools.yml:1:1: is not read; did you mean "pools.yaml"?'],
  )
  t.end()
})

t.test('private egress IPs need delivery.allow_private_addresses, a private source does not', async (t) => {
  const settings = { ...overrides(t), 'delivery.allow_private_addresses': false }
  const ips = ['127.0.0.11', '10.1.2.3', 'fd00::1', '169.254.1.1', '224.0.0.1', '2606:4700::1', '203.0.113.9'].map(
    (address, index) => `      - { address: "${address}", hostname: a${index}.example, source: 10.0.0.1 }`,
  )
  const start = 'version: 1\ndefault_pool: a\npools:\n  a:\n    ips:\n'
  const folder = folderWith(t, { 'pools.yaml': `${start}${ips.join('\n')}\n` })
  const errors = mistakesIn({ folder, overrides: settings, neededSecrets: 'none' }).filter(
    ({ severity }) => severity === 'error',
  )
  t.strictSame(
    errors.map(({ line, column }) => [line, column]),
    [
      [6, 20],
      [7, 20],
      [8, 20],
      [9, 20],
      [10, 20],
    ],
  )
})

const WARMUP_MISTAKES: [text: string, expected: string[]][] = [
  ['a: { stages: [50, 40] }', ['3:21: curves.a.stages[1]: 40 is below the stage before it (50)']],
  [
    'a: { stages: [10] }',
    [
      '3:17: curves.a.stages[0]: stage 1 allows 10 messages, but advance.min_events asks for 20: ' +
        'it would never advance',
    ],
  ],
  ['a: {}', ['3:3: curves.a: a curve has either stages or a formula']],
  [
    'a: { stages: [50], hold: { hard_bounce: 6% } }',
    ['3:43: curves.a.hold.hard_bounce: 0.06 is above demote.hard_bounce (0.05); hold, demote and pause must rise'],
  ],
  [
    'a: { stages: [50], provider_share: { gmial: 1 } }',
    ['3:40: curves.a.provider_share.gmial: no isp "gmial" in providers.yaml; did you mean "gmail"? -> gmail'],
  ],
  [
    'a: { stages: [50], active_window: "8-20" }',
    ['3:37: curves.a.active_window: "8-20" is not a part of a UTC day; write for example "06:00-22:00"'],
  ],
]

t.test('curves that cannot be climbed and gates in the wrong order are told', async (t) => {
  for (const [curve, expected] of WARMUP_MISTAKES) {
    const text = `version: 1\ncurves:\n  ${curve}\n  standard: { stages: [50] }\n  conservative: { stages: [50] }\n`
    t.strictSame(
      errorsOf(t, 'warmup.yaml', text),
      expected.map((line) => `warmup.yaml:${line}`),
      curve,
    )
  }
  const standard = 'version: 1\ncurves:\n  standard: { stages: [50] }\n  conservative: { stages: [50] }\n'
  t.strictSame(
    errorsOf(t, 'warmup.yaml', `${standard}defaults: { pause: { complaint: 0.2% }, curve: standrad }\n`),
    [
      'warmup.yaml:5:11: defaults.demote.complaint: 0.003 is above pause.complaint (0.002); ' +
        'hold, demote and pause must rise',
      'warmup.yaml:5:48: defaults.curve: no curve "standrad"; did you mean "standard"? -> standard',
    ],
    'a value that is a default is told at the map around it',
  )
})

t.test('all mistakes of the documented example are found, each in its own file', async (t) => {
  const folder = join(FIXTURES, 'documented')
  t.strictSame(
    mistakesIn({ folder }).map((mistake) => lineOf(mistake, folder)),
    [
      'pools.d/20-bulk.yaml:5:20: pools.bulk.ips[0].address: 203.0.113.10 is already in pool "default" (pools.yaml:6:20)',
      'pools.yaml:7:20: pools.default.ips[1].address: "203.0.113.300" is not an IPv4 or IPv6 address',
      'pools.yaml:10:9: pools.default.ips[2]: unknown key "wieght"; did you mean "weight"? -> weight',
      'pools.yaml:12:20: pools.bulk.overflow_pool: no pool "defualt"; did you mean "default"? -> default',
      'sternpost.yaml:4:15: secrets.master_key: a secret must be { file: … } or { credential: … }, not a string',
      'sternpost.yaml:7:12: dns.timeout: 5 has no unit; write which is meant: 5s, 5m, 5h, 5d',
    ],
  )
})

t.test('the printed form shows the line, a caret and the fix, and never a secret', async (t) => {
  const text = explainMistakes(mistakesIn({ folder: join(FIXTURES, 'documented') }))
  const file = join(FIXTURES, 'documented', 'pools.yaml')
  t.match(
    text,
    `${file}:10:9: pools.default.ips[2]: unknown key "wieght"; did you mean "weight"?\n` +
      '          wieght: 50\n          ^ weight\n',
  )
  t.match(text, /\n6 errors in 3 files\. The configuration is not valid\.$/)
  t.notMatch(text, 'c2VjcmV0', 'the line with the key is not shown')

  const url = 'storage: { engine: postgres, url: "postgres://me:word@db/mail" }\n'
  const folder = folderWith(t, { 'sternpost.yaml': `${SERVER}${url}` })
  const told = explainMistakes(mistakesIn({ folder, neededSecrets: 'none' }))
  t.match(told, /storage.url: a secret must be/)
  t.notMatch(told, 'word@', 'nor a URL with a password')
  const { trees } = readFolder(folder, SHIPPED)
  const shown = JSON.stringify(trees.sternpost && shownSettings(trees.sternpost, []))
  t.match(shown, 'postgres://me:***@db/mail')
  t.notMatch(shown, 'word@')
})

t.test('at most 50 errors are printed, with the number left out; warnings say so', async (t) => {
  const error: Mistake = {
    file: 'a.yaml',
    line: 1,
    column: 3,
    path: 'a',
    severity: 'error',
    message: 'is wrong',
    suggestion: null,
  }
  const sixty = Array.from({ length: 60 }, (_, index) => ({ ...error, line: index + 1 }))
  const many = explainMistakes(sixty, () => undefined)
  t.equal(many.split('\n').filter((line) => line.includes('is wrong')).length, 50)
  t.match(many, /\nand 10 errors more\n60 errors in 1 file\. The configuration is not valid\.$/)
  const warnings = sixty.map((mistake) => ({ ...mistake, severity: 'warning' as const }))
  t.match(
    explainMistakes(warnings, () => undefined),
    /\nand 10 warnings more$/,
    'each costs a look into its file',
  )
  const warning = explainMistakes([{ ...error, severity: 'warning' }], () => '\tabc')
  t.equal(warning, 'a.yaml:1:3: warning: a: is wrong\n  \tabc\n  \t ^')
  const hostile = { ...error, message: 'no \u202e"' }
  t.match(
    explainMistakes([hostile], () => '\u001b\u009bc'),
    /: no \ufffd"\n {2}\ufffd\ufffdc\n {4}\^/,
    'nothing that a terminal obeys',
  )
  t.equal(explainMistakes([]), '')
})

t.test('a mistake in an override points at the override', async (t) => {
  const folder = join(FIXTURES, 'production')
  const [mistake] = mistakesIn({ folder, overrides: { ...overrides(t), 'dns.timeout': 5 } })
  t.match(mistake, { file: '<override>', line: 1, column: 1, path: 'dns.timeout', suggestion: null })
})

t.test('a folder that is not there is an error, a missing file falls back', async (t) => {
  t.throws(
    () => load({ folder: '/nowhere/sternpost' }),
    new ConfigurationError([
      {
        file: '/nowhere/sternpost',
        line: 1,
        column: 1,
        path: '',
        severity: 'error',
        suggestion: null,
        message:
          'there is no such folder; make it with sternpost.yaml and pools.yaml, name another with --config, ' +
          'or say by STERNPOST_HOSTNAME and STERNPOST_IPS what is needed',
      },
    ]),
  )
  const settings = overrides(t)
  const folder = folderWith(t, {})
  const warnings = mistakesIn({ folder, overrides: settings, neededSecrets: 'none' }).filter(({ message }) =>
    message.startsWith('there is no such file: write it, or let `sternpost setup` do that; '),
  )
  t.strictSame(
    warnings.map(({ file }) => file),
    [join(folder, 'pools.yaml'), join(folder, 'sternpost.yaml')],
  )
})

t.test('a key that versions before took, and never used, is a warning: an upgrade takes the file', async (t) => {
  const sections = 'delivery: { idle_connection: 1m, lease: 20m }\nstorage: { postgres: null, wal_max: 1MiB }\n'
  const folder = folderWith(t, { 'sternpost.yaml': `${SERVER}${sections}`, 'pools.yaml': POOLS })
  const { server, warnings } = load({ folder, neededSecrets: 'none' })
  t.match(server.delivery, { lease: 20 * 60_000 })
  const told = warnings.filter(({ path }) => path === 'delivery.idle_connection')
  t.match(told, [{ severity: 'warning', line: 4, column: 13, message: /^is not used; `idle` of providers\.yaml/ }])
  t.equal(server.storage.wal_max, 1_048_576)
  const shipped = warnings.filter(({ path }) => path === 'storage.postgres')
  t.match(shipped, [{ severity: 'warning', line: 5, column: 12, message: /^is not used; `storage\.url` says/ }])
})

t.test('a link that leads nowhere is an error: what it led to may come back in a moment', async (t) => {
  const settings = overrides(t)
  const folder = folderWith(t, { 'sternpost.d/10-a.yaml': 'version: 1\n' })
  const gone = join(folder, 'releases', '7')
  for (const name of ['pools.yaml', 'pools.d', 'warmup.yaml', 'sternpost.d/20-b.yaml']) {
    symlinkSync(join(gone, name), join(folder, name))
  }
  const found = mistakesIn({ folder, overrides: settings, neededSecrets: 'none' })
  const errors = found.filter(({ severity }) => severity === 'error').map((mistake) => lineOf(mistake, folder))
  const expected = ['pools.d', 'pools.yaml', 'sternpost.d/20-b.yaml', 'warmup.yaml'].map(
    (name) => `${name}:1:1: is a link that leads nowhere: ${join(gone, name)}`,
  )
  t.same(errors.toSorted(), expected)
  const current = join(folder, 'current')
  symlinkSync(gone, current)
  t.match(mistakesIn({ folder: current }), [{ file: current, message: `is a link that leads nowhere: ${gone}` }])
})

t.test('a folder that one may not look into is said by its files', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-config-'))
  t.teardown(async () => rmSync(folder, { recursive: true, force: true }))
  writeFileSync(join(folder, 'sternpost.yaml'), 'version: 1\n')
  // Who owns it may not search it either; root may do all.
  chmodSync(folder, 0o600)
  const isRoot = process.geteuid?.() === 0
  if (isRoot) process.seteuid?.(NOBODY)
  try {
    const { path, mistakes } = readAdminSocket(folder, SHIPPED)
    t.equal(path, null)
    t.match(mistakes, [
      { file: join(folder, 'sternpost.yaml'), line: 1, message: /^cannot be read: EACCES/ },
      { file: join(folder, 'sternpost.d'), line: 1, message: /^cannot be read: EACCES/ },
    ])
  } finally {
    if (isRoot) process.seteuid?.(0)
    chmodSync(folder, 0o700)
  }
})

t.test('what is no regular file is an error, and nobody waits for it', async (t) => {
  const settings = overrides(t)
  const folder = folderWith(t, { 'pools.yaml/inner': '' })
  execFileSync('mkfifo', ['--mode=600', join(folder, 'sternpost.yaml'), join(folder, 'master.key')])
  symlinkSync('/dev/zero', join(folder, 'warmup.yaml'))
  writeFileSync(join(folder, 'providers.yaml'), Buffer.alloc(11 * 1024 * 1024, '#'))
  const found = mistakesIn({ folder, overrides: settings, neededSecrets: 'none' })
  const messages = (name: string): string[] =>
    found.filter(({ file }) => file === join(folder, name)).map(({ message }) => message)
  t.match(messages('sternpost.yaml'), [/not a regular file: a pipe/])
  t.match(messages('warmup.yaml'), [/not a regular file/])
  t.match(messages('pools.yaml'), [/is a folder/])
  t.match(messages('providers.yaml'), [/11534336 bytes; at most 10485760/])
  const withPipe = { ...settings, 'secrets.master_key': { file: join(folder, 'master.key') } }
  const production = join(FIXTURES, 'production')
  t.ok(mistakesIn({ folder: production, overrides: withPipe }).some(({ message }) => /regular file/.test(message)))
})
