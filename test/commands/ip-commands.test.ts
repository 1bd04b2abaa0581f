/**
 * `sternpost ip`, `pool`, `path` and `provider` as an administrator runs them: the real verbs over a real admin socket,
 * with a real store, pools, warmup and shaping behind it. Standard output holds the result alone.
 */
import t from 'tap'
import { dayChart } from '../../src/commands/sending/ip-report.ts'
import { forecastReport, ipReport, type ShownIp } from '../../src/commands/sending/ip-report.ts'
import { LANE, pathTo, refused } from '../egress/shaping-world.ts'
import { keyNamed } from '../http/api-server.ts'
import { commandServer, sternpost, rows } from './command-server.ts'

const COLD = '127.0.0.14'
const WARMED = '127.0.0.11'
const BLOCK = refused('550 5.7.1 blocked', 'ip_block')

const { api, run } = await commandServer(t)

const json = async (...words: string[]): Promise<unknown> => JSON.parse((await run(...words, '--json')).stdout)

t.test('a chart has a line for each day: sent, left of the plan, still to come', async (t) => {
  const days = [
    { date: '2026-11-19', planned: 50, sent: 50 },
    { date: '2026-11-20', planned: 100, sent: 98 },
    { date: '2026-11-21', planned: 200, sent: 1 },
    { date: '2026-11-22', planned: 350, sent: null },
  ]
  const width = 80
  const lines = dayChart(days, '2026-11-21', width)
  t.same(
    lines.map((line) => line.slice(0, 22)),
    ['2026-11-19   50 of  50', '2026-11-20   98 of 100', '2026-11-21    1 of 200', '2026-11-22      to 350'],
  )
  t.ok(
    lines.every((line) => line.length <= width),
    'it fits the terminal',
  )
  t.match(lines[0], /50 {2}█+$/, 'all of it was used')
  t.match(lines[1], /100 {2}█+░?$/)
  t.match(lines[2], /200 {2}█░+ {2}today$/, 'one message is not nothing')
  t.match(lines[3], /350 {2}░+$/)
  t.equal(lines[3]?.match(/░/g)?.length, Math.max(...lines.map((line) => line.match(/[█░]/g)?.length ?? 0)))
  t.same(dayChart([], '2026-11-21', width), [])
  const quiet = dayChart([{ date: '2026-11-21', planned: null, sent: 0 }], '2026-11-21', 20)
  t.match(quiet, [/^2026-11-21 {2}0 +today$/], 'a day without a plan and without mail')
  t.match(dayChart([{ date: '2026-11-21', planned: null, sent: 7 }], '', 30)[0], /^2026-11-21 {2}7 +█{8,}$/)
})

t.test('list and show', async (t) => {
  const { code, stdout, stderr } = await run('ip', 'list')
  t.match([code, stderr], [0, ''])
  t.same(rows(stdout)[0], [WARMED, 'default', 'warmed', '', '', '', 'unknown', 'mta-127.0.0.11.example'])
  t.match(await json('ip', 'list'), [{ ip: WARMED, warmup: null }, {}, {}, { ip: COLD, status: 'cold' }, {}])
  const shown = await run('ip', 'show', COLD)
  t.match(shown, { code: 0, stdout: /^127\.0\.0\.14 {2}cold\n {2}pool .*\n[^]*\n2026-11-21\t\t0\n2026-11-22\t\t\n/ })
  const first = { date: '2026-11-08', planned: null, sent: 0 }
  t.match(await json('ip', 'show', COLD), { ip: COLD, days: [first], history: [] })
  t.match(await run('ip', 'show', '192.0.2.77'), { code: 1, stdout: '', stderr: /no IP 192\.0\.2\.77 .*`list`/ })
  t.match(await run('ip', 'show', 'mta1'), { code: 1, stderr: /"mta1" is not an IP/ })
  t.match(await run('ip', 'show'), { code: 64 })
  const remote = ['--url', `http://127.0.0.1:${api.port}/v1`, '--api-key', keyNamed('stats'), '--json']
  const limited = await sternpost(['ip', 'show', COLD, ...remote])
  t.match([limited.code, JSON.parse(limited.stdout)], [0, { ip: COLD, days: null, history: null }])
})

t.test('a report on a terminal has the chart, and none of what came from outside is obeyed', async (t) => {
  const warmup = {
    status: 'warming' as const,
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
    estimated_completion: null,
    target_daily_volume: 100_000,
    hold_reason: 'deferrals: 20 %',
    paused_until: null,
    providers: { gmail: { daily_limit: 100, sent_today: 61 } },
  }
  const shown: ShownIp = {
    ip: WARMED,
    pool: 'default',
    hostname: 'mta1.example',
    status: 'warming',
    enabled: true,
    bindable: false,
    weight: 1,
    reason: null,
    changed_by: 'cli',
    changed_at: 1_795_046_400,
    until: null,
    warmup,
    ptr: { status: 'mismatch', value: 'evil\u001b[2J.example', checked_at: null },
    blocklists: [
      { zone: 'zen.example', listed: true, checked_at: 1 },
      { zone: 'b.example', listed: null, checked_at: null },
    ],
    days: [{ date: '2026-11-21', planned: 200, sent: 112 }],
    history: [
      {
        at: 1_795_046_400,
        actor: 'gate',
        action: 'demote',
        from_state: 'warming',
        to_state: 'warming',
        from_stage: 5,
        to_stage: 3,
        day: null,
        figures: {},
        reason: 'hard bounces',
      },
    ],
  }
  const screen = { isTerminal: true, width: 60, now: Date.UTC(2026, 10, 21, 12) }
  const text = ipReport(shown, screen)
  t.match(text, /standard, stage 3 of 30 \(6 %\), day 3/)
  t.match(text, /112 of 200, 88 left/)
  t.match(text, /zen\.example: LISTED; b\.example: not known/)
  t.match(text, /\n2026-11-21 {2}112 of 200 {2}█+░+ {2}today\n/)
  t.match(text, /demote by gate {2}stage 5 -> 3 {2}hard bounces\n$/)
  t.match(text, /cannot be bound/)
  t.notMatch(text, '\u001b')
  t.notMatch(ipReport({ ...shown, days: null, history: null }, screen), /█|demote/)
})

t.test('warmup: start, pause, resume, complete, restart, with the states of the API', async (t) => {
  const warmup = (...words: string[]) => run('ip', 'warmup', ...words)
  t.match(await warmup('pause', COLD), { code: 1, stdout: '', stderr: /no warmup of 127\.0\.0\.14 was started/ })
  t.match(await warmup('start', COLD, '--curve', 'steep'), { code: 1, stderr: /there are .*standard/ })
  t.match(await warmup('start', COLD, '--stage', '0'), { code: 64, stderr: /--stage: "0" is no whole number/ })
  const started = await warmup('start', COLD, '--curve', 'fast', '--stage', '2', '--target', '5000')
  t.match(started, { code: 0, stdout: /^127\.0\.0\.14 {2}warming\n {2}warmup +fast, stage 2 of 20/, stderr: '' })
  t.match(started.stdout, 'target        5000 a day')
  t.match(rows((await run('ip', 'list')).stdout)[3]?.slice(2, 6), ['warming', '2/20', '0', '500'])
  const paused = await json('ip', 'warmup', 'pause', COLD, '--reason', 'look')
  t.match(paused, { ip: COLD, status: 'paused', warmup: { stage: 2 } })
  t.match(await json('ip', 'show', COLD), { reason: 'look', changed_by: 'cli', history: [{ action: 'pause' }, {}] })
  t.match(await warmup('resume', COLD), { code: 0, stdout: /warming/ })
  t.match(await warmup('complete', COLD), { code: 0, stdout: /warmed\n/ })
  t.match(await warmup('start', COLD), {
    code: 1,
    stderr: /is warmed; restart: true .sternpost ip warmup restart 127.* begins again/,
  })
  t.match(await json('ip', 'warmup', 'restart', COLD), { status: 'warming', warmup: { stage: 1, curve: 'standard' } })
})

t.test('forecast says when a campaign would have left', async (t) => {
  const { code, stdout } = await run('ip', 'warmup', 'forecast', COLD, '--recipients', '1000')
  t.equal(code, 0)
  t.match(stdout, /^1000 messages from 127\.0\.0\.14: by 2026-11-2\d .*\n[^]*starts within max_defer +no\n/)
  t.match(stdout, /\n2026-11-22\t2\t100\t100\t/)
  const later = ['--recipients', '10', '--isp', 'gmail', '--start', '1796083200']
  t.match(await json('ip', 'warmup', 'forecast', COLD, ...later), {
    recipients: 10,
    start_at: 1_796_083_200,
    backlog: 0,
  })
  t.match(await run('ip', 'warmup', 'forecast', COLD), { code: 64 })
  t.match(await run('ip', 'warmup', 'forecast', COLD, '--recipients', 'many'), { code: 64 })
  const never = {
    ip: COLD,
    recipients: 5,
    backlog: 3,
    start_at: 0,
    finish_at: null,
    fits_max_defer: false,
    fits_lifetime: true,
    days: [],
  }
  t.match(forecastReport(never, true), /not within 400 days\n[^]*3 messages that wait already\n[^]*lifetime +yes\n/)
  t.match(forecastReport({ ...never, finish_at: 10 * 86_400 }, true), /takes +10\.0 days\n/)
})

t.test('suspend and resume', async (t) => {
  t.match(await run('ip', 'suspend', WARMED, '--reason', 'listed'), { code: 0, stdout: `${WARMED} is suspended\n` })
  t.match(await json('ip', 'show', WARMED), { status: 'suspended', reason: 'listed' })
  t.match(await json('ip', 'resume', WARMED), { ip: WARMED, status: 'warmed' })
  const others = await run('ip', 'suspend', WARMED, '192.0.2.77')
  t.match(others, { code: 1, stdout: `${WARMED} is suspended\n`, stderr: /no IP/ }, 'one after the other')
  t.match(await run('ip', 'resume', WARMED), { code: 0 })
  const ofProvider = await run('ip', 'suspend', WARMED, '--provider', 'google', '--reason', 'listed')
  t.match(ofProvider, { code: 0, stdout: `${WARMED} is warmed, its mail to google is suspended\n` })
  const { stdout } = await run('path', 'list')
  t.match(rows(stdout)[0], ['suspended', WARMED, 'gmail', 'google', '', 'resumed', '', '', /^by .*: listed$/])
  t.match(await run('ip', 'suspend', WARMED, '--provider', 'gmail'), { code: 1, stderr: /did you mean "google"\?/ })
  t.match(await run('ip', 'resume', WARMED, '--provider', 'google'), { code: 0, stdout: /google is resumed\n$/ })
  t.same(api.shaping.views(), [])
})

t.test('pools', async (t) => {
  const { code, stdout } = await run('pool', 'list')
  t.match([code, rows(stdout)[0]], [0, ['default (default)', '2', '2', '0', 'spill to spare', '']])
  t.match(rows(stdout)[3]?.slice(0, 3), ['off', '1', '0'])
  t.match(await run('pool', 'show', 'off'), { code: 0, stdout: /^off\n[^]*\n127\.0\.0\.15\tdisabled\tnothing\t100\t/ })
  t.match(await json('pool', 'show', 'default'), { name: 'default', default: true, max_defer: '1d', ips: [{}, {}] })
  t.match(await json('pool', 'list'), [{ name: 'default' }, {}, {}, {}])
  t.match(await run('pool', 'show', 'nowhere'), { code: 1, stdout: '', stderr: /no pool "nowhere"; there are def/ })
})

t.test('paths are resumed with --yes alone, and show their number first', async (t) => {
  t.match(await run('path', 'list'), { code: 0, stdout: '', stderr: 'Nothing is held back there.\n' })
  for (let count = 0; count < 5; count++) api.shaping.noteTry(pathTo('google', { ip: WARMED }), LANE, BLOCK)
  const { stdout } = await run('path', 'list', '--ip', WARMED, '--route', 'google')
  t.match(rows(stdout)[0], ['suspended', WARMED, 'gmail', 'google', '', /^\d{4}-/, '', '', /blocked/])
  t.match(await json('path', 'list'), [{ ip: WARMED, status: 'suspended', holds: [{ kind: 'suspension' }] }])
  const asked = await run('path', 'resume', '--ip', WARMED)
  t.match(asked, { code: 64, stdout: '1 path would be resumed\n', stderr: /path resume --ip 127\.0\.0\.11 --yes/ })
  t.equal(api.shaping.views().length, 1, 'nothing is changed')
  const lane = ['--pool', 'default', '--domain', 'acme.com']
  t.match(await run('path', 'resume', ...lane), { code: 0, stdout: '0 paths resumed\n' }, 'of no other domain')
  t.match(await run('path', 'resume', '--ip', WARMED, '--yes'), { code: 0, stdout: '1 path resumed\n' })
  t.same(api.shaping.views(), [])
  t.match(await json('path', 'resume'), { paths: 0, dry_run: true }, 'with nothing to do nobody is asked')
})

t.test('providers are read from the files; explain asks the server', async (t) => {
  const { code, stdout } = await run('provider', 'list')
  t.equal(code, 0)
  t.match(
    rows(stdout).find(([id]) => id === 'google'),
    ['google', 'gmail', '5', '50', '100/second', 'required'],
  )
  t.match(await json('provider', 'show', 'google'), {
    id: 'google',
    isp: 'gmail',
    mx_suffixes: ['google.com', 'googlemail.com'],
    connections: 5,
    idle: '15s',
    rules: [{ id: /^google-/, file: /providers\.yaml$/, line: Number, do: String, for: String, match: String }],
  })
  const shown = await run('provider', 'show', 'google')
  t.match(shown, { code: 0, stdout: /^google {2}isp gmail\n[^]*\nreply rules\n {2}google-/ })
  t.match(await run('provider', 'show', 'gogle'), { code: 64, stderr: /no provider "gogle"; write google/ })
  api.zone.set('own.example', { MX: ['10 mx.own.example'] })
  api.zone.set('mx.own.example', { A: ['192.178.0.3'] })
  const explained = await run('provider', 'explain', 'own.example')
  t.match(explained, { code: 0, stdout: /^own\.example\n {2}provider +none of providers\.yaml/ })
  t.match(explained.stdout, /\n {2}mx\.own\.example {2}192\.178\.0\.3\n {4}TLS where/)
  t.match(await json('provider', 'explain', 'nowhere.example'), { problem: 'the domain does not exist', hosts: [] })
  const unknown = await run('provider', 'explain', 'nowhere.example')
  t.match(unknown, { code: 0, stdout: /problem +the domain does not exist\n/ })
  t.match(await run('provider', 'explain', 'no_name'), { code: 1, stderr: /not a valid domain name/ })
})
