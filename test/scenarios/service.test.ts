/**
 * `sternpost serve` as a service manager runs it: with sockets that were opened for it, told of by notices, watched by
 * a watchdog. The manager is the test; the sockets, processes and signals are real.
 */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect, createServer, type AddressInfo, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { fakeSystemdNotify } from '../support/fake-systemd-notify.ts'
import { freePort, writeConfiguration } from '../support/serve-process.ts'
import { until } from '../support/until.ts'

const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url))
const HOLD_THREAD = fileURLToPath(new URL('package/hold-thread.py', import.meta.url))
const MAY_HOLD_THREADS = fileURLToPath(new URL('package/may-hold-threads', import.meta.url))
const POOLS = {
  version: 1,
  default_pool: 'default',
  pools: { default: { ips: [{ address: '127.0.0.1', hostname: 'mta.sternpost.test', warmed: true }] } },
}
const START_DEADLINE = 120_000
/** Signs of life come every half second here. */
const QUIET_MILLISECONDS = 2_000
const IS_ROOT = process.getuid?.() === 0

interface Service {
  child: ChildProcess
  folder: string
  output: () => string
  lines: () => Record<string, unknown>[]
  says: (text: string) => Promise<unknown>
}

interface ServiceOptions {
  listen: Record<string, unknown>
  sockets?: readonly Server[]
  environment?: Record<string, string>
  settings?: Record<string, Record<string, unknown>>
  /** In place of the number of the process. */
  processId?: string
  /** Words before the program. */
  by?: readonly string[]
}

async function startService(t: Test, options: ServiceOptions): Promise<Service> {
  const { listen, sockets = [], environment = {}, by = [], processId = '$$' } = options
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-'))
  const [httpPort, metricsPort] = [await freePort(), await freePort()]
  writeConfiguration(folder, {
    httpPort,
    metricsPort,
    dnsServer: '127.0.0.1:9',
    deliveryPort: 9,
    pools: POOLS,
    settings: { ...options.settings, listen: { metrics: null, ...listen } },
  })
  const count = sockets.length === 0 ? '' : `export LISTEN_PID=${processId} LISTEN_FDS=${sockets.length};`
  const program = `${count} exec ${by.join(' ')} sh scripts/sternpost serve --config ${folder}`
  const child = spawn('sh', ['-c', program], {
    cwd: REPOSITORY,
    env: { ...process.env, ...environment },
    stdio: ['ignore', 'pipe', 'pipe', ...sockets.map(descriptor)],
  })
  // The child has them now; here nobody may accept from them.
  for (const socket of sockets) socket.close()
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (text: Buffer) => (output += text.toString()))
  t.teardown(async () => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill('SIGKILL')
      await once(child, 'exit')
    }
    rmSync(folder, { recursive: true })
  })
  const says = (text: string): Promise<unknown> =>
    until(
      `"${text}" in ${output}`,
      () => {
        if (child.exitCode !== null && !output.includes(text))
          throw new Error(`ended with ${child.exitCode}: ${output}`)
        return output.includes(text)
      },
      START_DEADLINE,
    )
  const lines = (): Record<string, unknown>[] =>
    output
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line))
  return { child, folder, output: () => output, lines, says }
}

/** The number of the descriptor behind a listening server, which node tells no type of. */
function descriptor(server: Server): number {
  const handle: unknown = Reflect.get(server, '_handle')
  if (typeof handle === 'object' && handle !== null && 'fd' in handle) return Number(handle.fd)
  throw new Error('the server does not listen')
}

async function openUnixSocket(t: Test): Promise<Server> {
  // Its name may have about a hundred characters.
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const socket = createServer().listen(join(folder, 'socket'))
  await once(socket, 'listening')
  return socket
}

/** A socket as a manager opens it, to be handed over. */
async function openSocket(address: string): Promise<{ socket: Server; port: number }> {
  const socket = createServer().listen(0, address)
  await once(socket, 'listening')
  const { port } = socket.address() as AddressInfo
  return { socket, port }
}

async function firstLine(port: number, host = '127.0.0.1'): Promise<string> {
  const socket = connect(port, host)
  let text = ''
  socket.on('data', (part: Buffer) => (text += part.toString()))
  await until('a line', () => text.includes('\n'))
  socket.destroy()
  return text
}

t.test('passed sockets find their listener by port, whatever their order', async (t) => {
  const [inbound, http, submission, unwanted] = [
    await openSocket('::'),
    await openSocket('127.0.0.1'),
    await openSocket('127.0.0.1'),
    await openSocket('127.0.0.1'),
  ]
  const service = await startService(t, {
    sockets: [inbound.socket, unwanted.socket, await openUnixSocket(t), submission.socket, http.socket],
    settings: { http: { timeouts: { headers: '1s', request: '5s' } } },
    listen: {
      http: [{ address: '127.0.0.1', port: http.port, tls: false, serve: ['api'] }],
      submission: [{ address: '127.0.0.1', port: submission.port, tls: 'none' }],
      inbound: [{ address: '*', port: inbound.port }],
    },
  })
  // It holds the sockets, so a listener of its own would have found each port taken.
  await service.says('"ready"')
  t.equal((await fetch(`http://127.0.0.1:${http.port}/health`)).status, 200)
  t.match(await firstLine(submission.port), /^220 mail\.sternpost\.test/)
  t.match(await firstLine(inbound.port), /^220 mail\.sternpost\.test/, 'an IPv4 client of a socket for both families')
  t.match(await firstLine(inbound.port, '::1'), /^220 mail\.sternpost\.test/)
  const slow = connect(http.port, '127.0.0.1')
  slow.write('GET /health HTTP/1.1\r\n')
  let answer = ''
  slow.on('data', (part: Buffer) => (answer += part.toString()))
  await once(slow, 'close')
  t.match(answer, '408', 'heads are timed there, too')
  const warnings = service.lines().filter(({ msg }) => msg === 'a socket was passed that no listener is for')
  t.same(
    warnings.map(({ socket }) => socket),
    [`port ${unwanted.port} of 127.0.0.1`, 'descriptor 5, which is no listening TCP socket'],
  )
  t.match(String(warnings[0]?.['fix']), 'sternpost.socket')
  service.child.kill('SIGTERM')
  const [code] = await once(service.child, 'exit')
  t.equal(code, 0)
})

t.test('one port on several addresses: each socket goes to its own', async (t) => {
  const first = await openSocket('127.0.0.1')
  const second = createServer().listen(first.port, '127.0.0.2')
  await once(second, 'listening')
  const service = await startService(t, {
    sockets: [first.socket, second],
    listen: {
      http: [
        { address: '127.0.0.2', port: first.port, tls: false, serve: ['tracking'] },
        { address: '127.0.0.1', port: first.port, tls: false, serve: ['api'] },
      ],
    },
  })
  await service.says('"ready"')
  t.equal((await fetch(`http://127.0.0.1:${first.port}/health`)).status, 200)
  t.equal((await fetch(`http://127.0.0.2:${first.port}/health`)).status, 404, 'no API there')
})

t.test('a listener for one address takes no socket that everybody reaches', async (t) => {
  const submission = await openSocket('::')
  const service = await startService(t, {
    sockets: [submission.socket],
    listen: { submission: [{ address: '127.0.0.1', port: submission.port, tls: 'none' }] },
  })
  const [code] = await once(service.child, 'exit')
  t.equal(code, 78, service.output())
  t.match(service.output(), `listen.submission: port ${submission.port} of address 127.0.0.1 was opened on every`)
  t.match(service.output(), `"ListenStream=127.0.0.1:${submission.port}"`)
})

t.test('sockets for another process are not ours', async (t) => {
  const http = await openSocket('127.0.0.1')
  const service = await startService(t, {
    sockets: [http.socket],
    processId: '1',
    listen: { http: [{ address: '127.0.0.1', port: http.port, tls: false, serve: ['api'] }] },
  })
  const [code] = await once(service.child, 'exit')
  t.equal(code, 75)
  t.match(service.output(), `listen.http: port ${http.port} of address 127.0.0.1 is taken by another process`)
})

t.test('under a manager, a start that may succeed later ends late, and at once when it is stopped', async (t) => {
  const { environment, notices } = fakeSystemdNotify(t)
  const taken = await openSocket('127.0.0.1')
  t.teardown(() => taken.socket.close())
  const service = await startService(t, {
    environment,
    listen: { http: [{ address: '127.0.0.1', port: taken.port, tls: false, serve: ['api'] }] },
  })
  await service.says('not started; tried again in a minute')
  await until('the state', () =>
    notices().some((text) => text.startsWith('STATUS=not started, tried again in a minute')),
  )
  t.equal(service.child.exitCode, null)
  service.child.kill('SIGTERM')
  t.same(await once(service.child, 'exit'), [0, null])
})

t.test('a low port that nobody passed ends with 78 and the line to add', { skip: whyLowPortsOpen() }, async (t) => {
  const service = await startService(t, {
    by: IS_ROOT ? ['setpriv', '--bounding-set=-net_bind_service'] : [],
    listen: { inbound: [{ address: '127.0.0.1', port: 25 }] },
  })
  const [code] = await once(service.child, 'exit')
  t.equal(code, 78, service.output())
  t.match(service.output(), 'listen.inbound: port 25')
  t.match(service.output(), 'add the line "ListenStream=25" to sternpost.socket')
})

t.test('the manager is told of start, state, reloads and stop', async (t) => {
  const { environment, notices } = fakeSystemdNotify(t)
  const http = await freePort()
  const service = await startService(t, {
    environment: { ...environment, WATCHDOG_USEC: '3000000' },
    listen: { http: [{ address: '127.0.0.1', port: http, tls: false, serve: ['api'] }] },
  })
  await service.says('"ready"')
  await until('signs of life', () => notices().filter((text) => text === 'WATCHDOG=1').length >= 3)
  const told = (): string[] => notices().filter((text) => text !== 'WATCHDOG=1')
  t.match(told(), ['EXTEND_TIMEOUT_USEC=60000000', 'READY=1', 'STATUS=0 waiting, 0 being sent'])
  service.child.kill('SIGHUP')
  await until('a reload', () => told().length === 5)
  writeFileSync(join(service.folder, 'pools.yaml'), 'version: 1')
  service.child.kill('SIGHUP')
  await until('a reload that was refused', () => told().length === 7)
  t.same(told().slice(3), ['RELOADING=1', 'READY=1', 'RELOADING=1', 'READY=1'])
  await service.says('configuration not reloaded')

  service.child.kill('SIGQUIT')
  await service.says('diagnostic report written')
  const data = join(service.folder, 'data')
  const [report = ''] = readdirSync(data).filter((name) => name.startsWith('report-'))
  const text = readFileSync(join(data, report), 'utf8')
  t.match(text, '"workers"')
  t.notMatch(text, 'NOTIFY_SOCKET', 'nothing of its environment')
  t.equal((await fetch(`http://127.0.0.1:${http}/health`)).status, 200, 'and it goes on')

  service.child.kill('SIGTERM')
  const [code] = await once(service.child, 'exit')
  t.equal(code, 0)
  t.match(told().at(-1), 'STOPPING=1')
})

t.test('a stop does not wait for a backup that is in a long call', async (t) => {
  const programs = t.testdir({ tar: '#!/bin/sh\necho $$ > "${0%/*}/process"\nexec sleep 90\n' })
  chmodSync(join(programs, 'tar'), 0o755)
  const service = await startService(t, {
    environment: { PATH: `${programs}:${process.env['PATH'] ?? ''}` },
    listen: { http: [{ address: '127.0.0.1', port: await freePort(), tls: false, serve: ['api'] }] },
  })
  await service.says('"ready"')
  const backup = spawn('sh', ['scripts/sternpost', 'backup', '--config', service.folder], { cwd: REPOSITORY })
  t.teardown(() => backup.kill('SIGKILL'))
  await until('the archive is being packed', () => existsSync(join(programs, 'process')))
  const begun = performance.now()
  service.child.kill('SIGTERM')
  t.same(await once(service.child, 'exit'), [0, null])
  t.ok(performance.now() - begun < 60_000)
  t.match(service.output(), /a backup under way is not waited for any longer[^]*"stopped"/)
  t.same(readdirSync(join(service.folder, 'data', 'backups')), [])
  process.kill(Number(readFileSync(join(programs, 'process'), 'utf8')))
})

const skipHolding =
  spawnSync('sh', [MAY_HOLD_THREADS], { stdio: 'ignore' }).status !== 0 &&
  'no thread can be stopped here: that takes python3 and the right to trace'

const ALONE = ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc']
const skipAlone = spawnSync('unshare', [...ALONE.slice(1), 'true']).status !== 0 && 'needs a namespace of processes'
/** A signal while the program is read. */
const EARLY_SIGNAL = `data:text/javascript,${encodeURIComponent(`
  import { registerHooks } from 'node:module'
  registerHooks({ load(url, context, next) {
    if (url.endsWith('/src/starters.ts')) process.kill(process.pid, 'SIGTERM')
    return next(url, context)
  } })`)}`

t.test('the first process of a container ends by a signal that comes early', { skip: skipAlone }, async (t) => {
  const service = await startService(t, {
    by: ALONE,
    environment: { NODE_OPTIONS: `--import=${EARLY_SIGNAL}` },
    listen: { http: [{ address: '127.0.0.1', port: await freePort(), tls: false, serve: ['api'] }] },
  })
  const [code] = await once(service.child, 'exit', { signal: AbortSignal.timeout(START_DEADLINE) })
  // By then it may have taken the signal as a server does.
  t.ok(code === 143 || code === 0, `${code}: ${service.output()}`)
})

t.test('a hung thread ends the signs of life', { skip: skipHolding }, async (t) => {
  const { environment, notices } = fakeSystemdNotify(t)
  const service = await startService(t, {
    environment: { ...environment, WATCHDOG_USEC: '1500000' },
    listen: { http: [{ address: '127.0.0.1', port: await freePort(), tls: false, serve: ['api'] }] },
  })
  await service.says('"ready"')
  const beats = (): number => notices().filter((text) => text === 'WATCHDOG=1').length
  for (const name of ['store', 'delivery']) {
    await until('signs of life', () => beats() > 0)
    const holder = spawn('python3', [HOLD_THREAD, threadNamed(service.child.pid ?? 0, name)], { stdio: 'inherit' })
    await until(`the ${name} thread stands still`, () => isHeld(service.child.pid ?? 0, name))
    await quiet(beats)
    const before = beats()
    holder.kill('SIGKILL')
    await once(holder, 'exit')
    await until('signs of life again', () => beats() > before)
  }
})

function isThere(program: string): boolean {
  return spawnSync(program, ['--version']).error === undefined
}

function whyLowPortsOpen(): string | false {
  if (IS_ROOT && !isThere('setpriv')) return 'needs setpriv, to be no more than a user'
  const lowest = Number(readFileSync('/proc/sys/net/ipv4/ip_unprivileged_port_start', 'utf8'))
  return lowest <= 25 && 'every user may open low ports on this machine'
}

const tasks = (processId: number): string[] => readdirSync(`/proc/${processId}/task`)
const nameOf = (processId: number, task: string): string =>
  readFileSync(`/proc/${processId}/task/${task}/comm`, 'utf8').trim()

function threadNamed(processId: number, name: string): string {
  const all = tasks(processId)
  const found = all.find((task) => nameOf(processId, task) === name)
  if (found !== undefined) return found
  throw new Error(`no thread ${name}: ${all.map((task) => nameOf(processId, task)).join(' ')}`)
}

/** Resolves when nothing was added for several times as long as it takes when all is well. */
async function quiet(count: () => number): Promise<void> {
  let last = { count: count(), at: performance.now() }
  await until('the end of the signs of life', () => {
    if (count() !== last.count) last = { count: count(), at: performance.now() }
    return performance.now() - last.at > QUIET_MILLISECONDS
  })
}

/** Stopped by a tracer: state t (proc(5)). */
function isHeld(processId: number, name: string): boolean {
  const file = `/proc/${processId}/task/${threadNamed(processId, name)}/stat`
  return existsSync(file) && /\) t /.test(readFileSync(file, 'utf8'))
}
