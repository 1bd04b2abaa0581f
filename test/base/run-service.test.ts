/** The life of a server process as its service manager sees it. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import t from 'tap'
import { openPort } from '../../src/base/service/open-port.ts'

/** A server whose stop never ends, on a clock that runs a thousand times as fast. */
const SERVER = `
  import { runService } from './src/base/service/run-service.ts'
  import { createLogger } from './src/base/logger.ts'
  const clock = { now: Date.now, after(ms, call) { const timer = setTimeout(call, ms / 1_000); return () => clearTimeout(timer) } }
  const service = { isAlive: async () => {}, describe: async () => '', reload() {}, stop: () => new Promise(() => {}) }
  const logger = createLogger({ level: 'info', write: (line) => process.stdout.write(line) })
  setInterval(() => {}, 60_000)
  await runService({ start: async () => service, reportFolder: '.', logger, clock })
`

t.test('a stop that never ends is ended after five minutes, as by a kill', async (t) => {
  const server = spawn(process.execPath, ['--input-type=module-typescript', '--eval', SERVER], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.teardown(() => server.kill('SIGKILL'))
  let said = ''
  server.stdout.on('data', (bytes: Buffer) => {
    said += bytes.toString()
    if (said.includes('"ready"') && !said.includes('"stopping"')) server.kill('SIGTERM')
  })
  const [code] = await once(server, 'exit')
  t.equal(code, 1)
  t.match(said, /not stopped in time/)
})

t.test('an address that this machine does not have yet is worth another start', async (t) => {
  const port = { address: '203.0.113.10', port: 9464 }
  await t.rejects(openPort(createServer(), port, { setting: 'listen.metrics' }), {
    exitCode: 75,
    message: /this machine does not have the address/,
  })
})
