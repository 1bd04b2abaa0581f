/** The life of a server process as its service manager sees it. */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import t, { type Test } from 'tap'
import { openPort } from '../../src/base/service/open-port.ts'

/** A server on a clock that runs a thousand times as fast. */
const server = (start: string, stop: string): ChildProcess =>
  spawn(process.execPath, ['--input-type=module-typescript', '--eval', programOf(start, stop)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
const programOf = (start: string, stop: string): string => `
  import { RestartNeeded } from './src/base/errors.ts'
  import { runService } from './src/base/service/run-service.ts'
  import { createLogger } from './src/base/logger.ts'
  const clock = { now: Date.now, after(ms, call) { const timer = setTimeout(call, ms / 1_000); return () => clearTimeout(timer) } }
  const service = { isAlive: async () => {}, describe: async () => '', reload() { process.stdout.write('reloaded\\n') }, stop: () => new Promise((resolve) => ${stop}) }
  const logger = createLogger({ level: 'info', write: (line) => process.stdout.write(line) })
  setInterval(() => {}, 60_000)
  const start = async (onFatal) => {
    ${start}
    return service
  }
  await runService({ start, reportFolder: '.', logger, clock })
`

t.test('a stop that never ends is ended after five minutes, as by a kill', async (t) => {
  const { code, said } = await endOf(t, server('', '{}'), 'SIGTERM')
  t.equal(code, 1)
  t.match(said, /not stopped in time/)
})

t.test('one that works and has to start again ends what is under way first, a broken one within 5 s', async (t) => {
  const stop = 'setTimeout(resolve, 50)'
  const again = await endOf(t, server("onFatal(new RestartNeeded('the clock was set back'))", stop))
  t.match(again, { code: 1, said: /"stopped"/ })
  const broken = await endOf(t, server("onFatal(new Error('the store is gone'))", stop))
  t.match(broken, { code: 1, said: /not stopped in time/ })
})

t.test('a reload that is asked for during a long start happens behind it', async (t) => {
  const start = `process.kill(process.pid, 'SIGHUP'); await new Promise((resolve) => setTimeout(resolve, 50))`
  const { code, said } = await endOf(t, server(start, 'resolve()'), 'SIGTERM')
  t.equal(code, 0)
  t.match(said, /reloaded/)
})

t.test('a start that goes on for long behind a signal is ended, as by a kill', async (t) => {
  const stopping = `process.kill(process.pid, 'SIGTERM'); await new Promise((resolve) => `
  const endless = await endOf(t, server(`${stopping} {})`, 'resolve()'))
  t.match(endless, { code: 0, said: /stopped during the start/ })
  const short = await endOf(t, server(`${stopping} setTimeout(resolve, 1))`, 'setTimeout(resolve, 100)'))
  t.match(short, { code: 0, said: /"stopped"/ }, 'one that ends in time is stopped in order')
})

t.test('a reload that is asked for while the program is being loaded ends nothing', async (t) => {
  const hooks = `import { registerHooks } from 'node:module'
    registerHooks({ load(url, context, next) {
      if (url.endsWith('/commands/command-line.ts')) process.kill(process.pid, 'SIGHUP')
      return next(url, context)
    } })`
  const words = ['--import', `data:text/javascript,${encodeURIComponent(hooks)}`, 'src/main.ts', 'serve']
  const child = spawn(process.execPath, [...words, '--config', t.testdir({})], { stdio: 'ignore' })
  t.same(await once(child, 'close'), [78, null], 'it got as far as its configuration')
})

/** `signal`: sent once it is ready. */
async function endOf(t: Test, child: ChildProcess, signal?: NodeJS.Signals): Promise<{ code: number; said: string }> {
  t.teardown(() => child.kill('SIGKILL'))
  let said = ''
  child.stdout?.on('data', (bytes: Buffer) => {
    said += bytes.toString()
    if (signal !== undefined && said.includes('"ready"') && !said.includes('"stopping"')) child.kill(signal)
  })
  const [code] = await once(child, 'close')
  return { code, said }
}

t.test('an address that this machine does not have yet is worth another start', async (t) => {
  const port = { address: '203.0.113.10', port: 9464 }
  await t.rejects(openPort(createServer(), port, { setting: 'listen.metrics' }), {
    exitCode: 75,
    message: /this machine does not have the address/,
  })
})
