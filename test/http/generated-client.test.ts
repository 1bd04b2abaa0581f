/**
 * A client generated from openapi.json by openapi-typescript compiles strictly and sends a batch. The generator needs
 * TypeScript 5, so it lives in `test/client` with a lock file of its own: `npm ci --prefix test/client`.
 */
import { execFile } from 'node:child_process'
import { cpSync, existsSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import t from 'tap'
import { startKeepingSink } from '../support/keeping-sink.ts'
import { startServe } from '../support/serve-process.ts'
import { prepareSender, startApplianceZone, TWO_IPS } from '../support/two-ips.ts'

const CLIENT = fileURLToPath(new URL('../client', import.meta.url))
const run = promisify(execFile)

const isInstalled = existsSync(join(CLIENT, 'node_modules', 'openapi-typescript'))
const skip = isInstalled ? false : 'needs its generator: npm ci --prefix test/client'

t.setTimeout(600_000)

t.test('the generated client compiles and sends a batch', { skip }, async (t) => {
  const zone = await startApplianceZone('127.0.0.1')
  t.teardown(() => zone.close())
  const sink = await startKeepingSink()
  t.teardown(() => sink.close())
  const server = await startServe({ dnsServer: zone.server, deliveryPort: sink.port, pools: TWO_IPS })
  t.teardown(() => server.remove())
  await prepareSender(server, zone)
  const key = await server.createKey('send', 'messages:read')

  const folder = mkdtempSync(join(tmpdir(), 'sternpost-client-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  for (const file of ['send-batch.ts', 'tsconfig.json']) cpSync(join(CLIENT, file), join(folder, file))
  symlinkSync(join(CLIENT, 'node_modules'), join(folder, 'node_modules'))
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
  const document = await (await fetch(`${server.baseUrl}/v1/openapi.json`)).text()
  writeFileSync(join(folder, 'openapi.json'), document)
  const node = (...words: string[]): Promise<{ stdout: string }> => run(process.execPath, words, { cwd: folder })
  const tool = (name: string, file: string): string => join(CLIENT, 'node_modules', name, 'bin', file)

  await node(tool('openapi-typescript', 'cli.js'), 'openapi.json', '--output', 'sternpost-api.ts')
  await node(tool('typescript', 'tsc'), '--project', '.').catch((error: { stdout?: string }) => {
    throw new Error(`it does not compile:\n${error.stdout ?? ''}`)
  })
  const { stdout } = await node('send-batch.js', `${server.baseUrl}/v1`, key, 'ada@dest.test')
  t.match(JSON.parse(stdout), { accepted: 2, rejected: 1, ids: [/^msg_/, /^msg_/], subjects: ['Order 1', 'Order 2'] })
})
