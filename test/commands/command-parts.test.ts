/**
 * What the verbs print and decide: the parts without a server.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { runCommandLine } from '../../src/commands/command-line.ts'
import { readEventStream, type StreamEvent } from '../../src/commands/mail/follow-stream.ts'
import { commandText, heldMailCommands, serverWords } from '../../src/commands/shared/command-text.ts'
import { countFlag, timeFlag } from '../../src/commands/shared/flag-values.ts'
import { followMessage } from '../../src/commands/mail/send.ts'
import { followStream } from '../../src/commands/mail/follow-stream.ts'
import { importPieces } from '../../src/commands/mail/import-csv.ts'
import { explanationReport, messageReport } from '../../src/commands/mail/message-report.ts'
import { tailMessages } from '../../src/commands/mail/message.ts'
import { jsonText, preciseTime, rowOf, sheetText, tableText } from '../../src/commands/shared/text.ts'
import { endpointReport } from '../../src/commands/mail/webhook.ts'
import { DELIVERY_COLUMNS } from '../../src/commands/mail/webhook-deliveries.ts'
import type { Clock } from '../../src/base/clock.ts'
import { EXIT, ProcessExit } from '../../src/base/errors.ts'
import type { MessageState } from '../../src/mail/message.ts'
import { manualClock } from '../support/manual-clock.ts'
import { listedMessage, MESSAGE_ID, shownMessage } from './message-samples.ts'

/** No wait takes time. */
const HASTY: Clock = {
  now: () => 0,
  after(_, callback) {
    const handle = setImmediate(callback)
    return () => clearImmediate(handle)
  },
}

async function* bytes(...texts: (string | Uint8Array)[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield typeof text === 'string' ? Buffer.from(text) : text
}

async function eventsOf(...texts: (string | Uint8Array)[]): Promise<StreamEvent[]> {
  const events = []
  for await (const event of readEventStream(bytes(...texts))) events.push(event)
  return events
}

/** The words that a shell makes of it. */
const pasted = (command: string): string[] =>
  execFileSync('sh', ['-c', `sternpost() { printf '%s\\0' "$@"; }; ${command}`], { encoding: 'utf8' })
    .split('\0')
    .slice(0, -1)

t.test('a printed command that is pasted into a shell says what was meant, to the same server', async (t) => {
  const hostile = [`"a;touch x"@b.example`, '$(id)@b.example', "o'brien@b.example", '`id`', '~root', '*', '', 'a b\\']
  for (const value of hostile) {
    const command = commandText(
      { config: value },
      { verb: 'recipient erase', arguments: [value], options: { yes: true } },
    )
    t.same(pasted(command), ['recipient', 'erase', value, '--yes', '--config', value], command)
  }
  const remote = { url: 'https://mail.example.net/v1?a&b', apiKey: 'sk_live_secret', json: true, quiet: false }
  const listed = commandText(remote, { verb: 'queue hold', options: { pool: 'bulk', domain: undefined, held: true } })
  t.same(
    pasted(listed),
    ['queue', 'hold', '--pool', 'bulk', '--held', '--url', remote.url, '--api-key', '<key>', '--json'],
    'without the key, which a terminal or its log would keep',
  )
  const dashed = commandText({}, { verb: 'recipient erase', arguments: ['-x@b.example'], options: { yes: true } })
  t.equal(dashed, 'sternpost recipient erase --yes -- -x@b.example')
  t.notMatch(commandText({}, { verb: 'x', arguments: ['a\u001b[2J'] }), '\u001b', 'a terminal obeys nothing of it')
  t.match(heldMailCommands({}, { heldBefore: 2 }).at(-1), /^2 of them were held before/)
  t.equal(serverWords({ config: '/srv/a b' }), "--config '/srv/a b'")
})

t.test('a result that finds no room on the disk is said', async (t) => {
  const full = openSync('/dev/full', 'w')
  const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url))
  const { status, stderr } = spawnSync(process.execPath, [main, 'version'], {
    stdio: ['ignore', full, 'pipe'],
    encoding: 'utf8',
  })
  closeSync(full)
  t.match([status, stderr], [74, /^sternpost: standard output: ENOSPC: .*\n$/])
})

t.test('an event stream is read however it is cut', async (t) => {
  const text =
    '\ufeff: hello\n\nid: evt_1\nevent: email.bounced\ndata: {"a":"ö"}\n\n:\n\n' +
    'data:x\r\ndata:  y\rretry: 5\n\r\nid: evt_2\ndata: cut'
  const expected = [
    { id: 'evt_1', kind: 'email.bounced', data: '{"a":"ö"}' },
    { id: 'evt_1', kind: 'message', data: 'x\n y' },
  ]
  t.same(await eventsOf(text), expected)
  const whole = Buffer.from(text)
  t.same(await eventsOf(...Array.from(whole, (byte) => Buffer.of(byte))), expected, 'byte by byte')
  t.same(await eventsOf('event: x\n\nid: a\0b\ndata\n\n'), [{ id: '', kind: 'message', data: '' }])
  await t.rejects(eventsOf(`data: ${'x'.repeat(2_000_000)}`), /more than a MiB/)
})

t.test('a broken stream goes on behind the newest event, and waits longer each time', async (t) => {
  const opened: string[] = []
  const seen: string[] = []
  const waits: number[] = []
  const controller = new AbortController()
  const answers = [
    () => bytes('id: evt_2\ndata: a\n\n', 'id: evt_1\ndata: again\n\n'),
    () => {
      throw new ProcessExit(EXIT.unreachable, 'nobody')
    },
    () => bytes('id: evt_3\ndata: b\n\n'),
  ]
  const follow = (open: (lastId: string) => Promise<AsyncIterable<Uint8Array>>): Promise<void> =>
    followStream({
      clock: HASTY,
      open,
      onOpen: () => seen.push('open'),
      onEvent: async ({ data }) => void seen.push(data),
      onBroken: (_, wait) => {
        waits.push(wait)
        if (opened.length === answers.length) controller.abort()
      },
      signal: controller.signal,
    })
  await follow(async (lastId) => {
    opened.push(lastId)
    return answers[opened.length - 1]?.() ?? bytes()
  })
  t.same(opened, ['', 'evt_2', 'evt_2'])
  t.same(seen, ['open', 'a', 'again', 'b'])
  t.same(waits, [1_000, 2_000, 1_000])
})

t.test('a stream that cannot be opened at first, or is refused, ends with the reason', async (t) => {
  const follow = (...ends: (number | null)[]): Promise<void> =>
    followStream({
      clock: HASTY,
      open: async () => {
        const end = ends.shift()
        if (typeof end === 'number') throw new ProcessExit(end, `exit ${end}`)
        return bytes()
      },
      onOpen: () => undefined,
      onEvent: async () => undefined,
      onBroken: () => undefined,
      signal: new AbortController().signal,
    })
  await t.rejects(follow(EXIT.unreachable), { message: 'exit 69' })
  await t.rejects(follow(null, EXIT.notAllowed), { message: 'exit 77' })
})

t.test('tail prints what is new or changed, oldest first, and begins with the last ten', async (t) => {
  const page = (...states: MessageState[]) =>
    states.map((state, index) => listedMessage({ message_id: `msg_${states.length - index}`, state }))
  const twelve = Array.from({ length: 12 }, (): MessageState => 'queued')
  const pages = [page(...twelve), page('queued', 'delivered'), page('sending', 'delivered')]
  const printed: string[] = []
  const controller = new AbortController()
  await tailMessages({
    clock: HASTY,
    newest: async () => {
      if (pages.length === 1) controller.abort()
      return pages.shift() ?? []
    },
    print: ({ message_id: id, state }) => printed.push(`${id} ${state}`),
    signal: controller.signal,
  })
  t.same(
    printed.slice(0, 10),
    Array.from({ length: 10 }, (_, index) => `msg_${index + 3} queued`),
  )
  t.same(printed.slice(10), ['msg_1 delivered', 'msg_2 sending'], 'then what changed')
})

t.test('a message is followed until it is final, each event told once', async (t) => {
  const clock = manualClock()
  const states: MessageState[] = ['queued', 'sending', 'delivered']
  const event = (id: string) => ({ id, event: 'email.accepted', timestamp: 1, data: {} })
  const told: string[] = []
  const following = followMessage({
    clock,
    mostMilliseconds: 10_000,
    lookEveryMilliseconds: 500,
    stateOf: async () => states.shift() ?? 'delivered',
    timelineOf: async () => {
      queueMicrotask(() => setImmediate(() => clock.advance(500)))
      return [event('evt_1'), ...(states.length === 0 ? [event('evt_2')] : [])]
    },
    onEvent: ({ id }) => told.push(id),
  })
  t.equal(await following, 'delivered')
  t.same(told, ['evt_1', 'evt_2'])
})

t.test('times and counts are read in the forms that people write', async (t) => {
  const now = Date.UTC(2026, 10, 21, 12)
  t.equal(timeFlag('--since', '2h', now), String(now / 1_000 - 7_200))
  t.equal(timeFlag('--since', '1795219200', now), '1795219200')
  t.equal(timeFlag('--since', '2026-11-21T10:00Z', now), String(now / 1_000 - 7_200))
  t.equal(timeFlag('--since', '2026-11-21', now), String(new Date(2026, 10, 21).getTime() / 1_000), 'local time')
  t.equal(timeFlag('--since', '2026-11-21 10:30', now), String(new Date(2026, 10, 21, 10, 30).getTime() / 1_000))
  t.equal(timeFlag('--since', '2026-11-21T12:00:30.5+02:00', now), String(now / 1_000 - 7_200 + 30))
  const byDate = ['2026-11-21T12:00:30+0200', '2026-11-21T12:00:30,500000000+02:00', '2026-11-21t10:00:30z']
  for (const text of byDate) t.equal(timeFlag('--since', text, now), String(now / 1_000 - 7_200 + 30), text)
  const guessed = ['2026-11-21T12:00 5', '2026-11-21T12:00 PST', '2026-11-21T12:00Zx', '2026-11-21T12:00:00 (x)']
  const none = ['2026-02-30', '2026-02-30T12:00', '2026-11-21T24:30', '2026-11-21T12:60Z', '2026-11-21T12:00+99:00']
  for (const text of ['', 'yesterday', '2026-13-01', '5', '-2h', ...guessed, ...none]) {
    t.throws(() => timeFlag('--since', text, now), { message: /^sternpost: --since: / }, text)
  }
  t.equal(countFlag('--limit', '7'), 7)
  for (const text of ['0', '-1', '1.5', 'many', '']) t.throws(() => countFlag('--limit', text), { message: /--limit/ })
})

t.test('an import that fails says how far it got', async (t) => {
  const pieces = async function* () {
    yield { csv: 'email\na\n', firstLine: 2, lastLine: 2 }
    yield { csv: 'email\nb\n', firstLine: 3, lastLine: 3 }
  }
  let calls = 0
  const importing = (failsAt: number) =>
    importPieces({
      pieces: pieces(),
      onProgress: () => undefined,
      send: async () => {
        calls += 1
        if (calls === failsAt) throw new ProcessExit(EXIT.tryAgain, 'sternpost: busy.')
        return { added: 0, existing: 0, rejected: 1, errors: ['line 2: bad'] }
      },
    })
  const message = 'sternpost: busy. Lines 1 to 2 are in; importing the file again adds the rest.'
  await t.rejects(importing(2), { message })
  calls = 0
  await t.rejects(importing(1), { message: 'sternpost: busy.' })
  calls = 0
  t.same(await importing(0), { added: 0, existing: 0, rejected: 2, errors: ['line 2: bad', 'line 3: bad'] })
})

t.test('a message is shown with its attempts, its bounce and its dialogue', async (t) => {
  const text = messageReport(shownMessage())
  const at = preciseTime(1_795_219_206)
  t.match(at, /^2026-11-2\d \d\d:\d\d:06$/)
  t.match(text, `${MESSAGE_ID}  bounced\n  to         ada@gmail.com\n`)
  t.match(text, '  bounce     hard, invalid_recipient, 5.1.1: 550 5.1.1 No such user\n')
  t.match(text, '  sent from  203.0.113.10, pool default\n')
  const reply = '       550 5.1.1 No such user\n'
  const attempt = `    1  ${at}  bounced  840 ms  203.0.113.10, mx.example.net, TLSv1.3\n${reply}`
  t.match(text, `\n  attempts\n${attempt}`)
  t.match(text, `\n  timeline\n    ${at}  email.bounced  bounce_type=hard  extra={"n":1}\n`)
  t.match(text, '\n  dialogue of attempt 1\n    S: 220 hi\n    C: EHLO x\\u001b[2J\n')
  t.match(text, '  opens      1, and 2 by machines\n')
  const untried = { n: 1, at: 1_795_219_206, ip: null, mx: null, tls: null, reply: '', duration_ms: 0 }
  const expired = messageReport({ ...shownMessage(), attempts: [{ ...untried, result: 'expired' }] })
  t.match(expired, `\n    1  ${at}  expired  0 ms\n`, 'no word on TLS without a host')
  t.notMatch(text, 'clicks')
  t.notMatch(text.replaceAll('\n', ''), /\p{Cc}/u, 'nothing that a terminal would obey')
})

t.test('an explanation, an endpoint and a delivery as text', async (t) => {
  const explanation = explanationReport({
    message_id: MESSAGE_ID,
    state: 'deferred',
    summary: 'Gmail asks this IP to slow down.',
    waiting_for: 'retry_delay',
    reply: '421 4.7.28 slow',
    category: 'rate',
    rule: 'google-unusual-rate',
    next_attempt_at: 1_795_220_100,
    checks: [
      { check: 'dkim', status: 'pass', seen: 'ps1' },
      { check: 'dmarc', status: 'warn', seen: null },
    ],
    similar: { isp: 'gmail', last_hour: { attempts: 120, deferred: 31 } },
    advice: ['Nothing to do.'],
  })
  t.match(explanation, `  next attempt  ${preciseTime(1_795_220_100)}\n`)
  t.match(explanation, '  similar       gmail, last hour: 120 attempts, 31 of them deferred\n')
  t.match(explanation, '\n  checks\n    pass  dkim: ps1\n    warn  dmarc\n')
  const endpoint = endpointReport({
    id: 'wh_1',
    url: 'https://x',
    events: ['*'],
    include: [],
    mode: 'live',
    domains: ['acme.com'],
    description: null,
    status: 'disabled',
    disabled_reason: 'failing',
    secret_set: true,
    created_at: 1,
    updated_at: 1,
    last_success_at: null,
    last_failure_at: 1,
    consecutive_failures: 3,
    pending: 4,
    dead_letters: 5,
  })
  t.match(endpoint, /^wh_1 {2}disabled \(failing\)\n[\s\S]*last success +never\n[\s\S]*failed in a row +3\n/)
  t.match(endpoint, /dead letters +5\n$/)
  t.same(
    rowOf(DELIVERY_COLUMNS, {
      id: 'whd_1',
      webhook_id: 'wh_1',
      event_id: 'evt_1',
      event: 'email.opened',
      message_id: null,
      status: 'failed',
      attempts: 6,
      created_at: 1_795_219_206,
      next_attempt_at: null,
      ended_at: 1_795_219_300,
    }),
    [preciseTime(1_795_219_206), 'failed', 'email.opened', '6', '', '', 'whd_1'],
  )
  t.equal(
    sheetText('head', [
      ['a', null],
      ['long', ''],
      ['bcd', 'x'],
    ]),
    'head\n  bcd  x\n',
  )
})

t.test('a reader that has gone ends a verb without a word', async (t) => {
  const said = t.capture(process.stderr, 'write', () => true)
  const gone = Object.assign(new Error('write EPIPE'), { code: 'EPIPE', syscall: 'write' })
  const load = async (): Promise<never> => Promise.reject(gone)
  t.equal(await runCommandLine(['serve'], '0.0.0', load), EXIT.failed)
  t.equal(said().length, 0)
})

t.test(
  'an empty argument, a second value for a flag that takes one, and a value that cannot be meant are refused',
  async (t) => {
    const said = t.capture(process.stderr, 'write', () => true)
    const noServer = async (): Promise<never> => Promise.reject(new Error('no server is started here'))
    const refused: [RegExp, ...string[]][] = [
      [/<id> is empty/, 'key', 'revoke', '', '--yes'],
      [/<checks> is empty/, 'doctor', 'config', ''],
      [
        /argument 'b@x.org' is invalid. It takes one value, and has 'a@x.org'/,
        'send',
        '--to',
        'a@x.org',
        '--to',
        'b@x.org',
      ],
      [/It takes one value, and has 'all'/, 'domain', 'list', '--status', 'all', '--status', 'pending'],
      [/--config: is empty; name the folder/, 'message', 'list', '--config', ''],
      [/--until lies before --since/, 'message', 'list', '--since', '1h', '--until', '2h'],
      [/--key-file: \/dev\/zero has more than 1 MiB/, 'domain', 'add', 'acme.com', '--key-file', '/dev/zero'],
      [/argument 'nosuch' is invalid. Allowed choices are/, 'domain', 'list', '--status', 'nosuch'],
    ]
    for (const [sentence, ...words] of refused) {
      t.equal(await runCommandLine(words, '0.0.0', noServer), EXIT.usage, words.join(' '))
      t.match(
        said()
          .map(({ args }) => String(args[0]))
          .join(''),
        sentence,
      )
    }
  },
)

t.test('nothing in a document of JSON is obeyed by a terminal, and nothing of it is lost', async (t) => {
  const document = { '\u009b31m': 'a\u202e\u061c\u007f\u001b[2J', name: 'ü' }
  for (const indent of [0, 2]) {
    t.match(jsonText(document, indent), /^[\x20-\x7e\n\u00fc]*$/)
    t.same(JSON.parse(jsonText(document, indent)), document)
  }
})

t.test('a cell that is very long leaves the other rows as they are', async (t) => {
  const table = tableText(
    ['A', 'B'],
    [
      ['x'.repeat(900), '1'],
      ['y', '2'],
    ],
    true,
  )
  t.match(table, /\ny {61}2\n$/)
})
