/**
 * What a newcomer does: start it, paste the printed curl, look at the inbox and the webhook inspector; and what goes
 * wrong on the way ends in one clear line.
 */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { dkimVerify } from 'mailauth'
import t from 'tap'
import { missingPrograms } from '../support/programs.ts'
import { end, startSandbox, temporaryFolder, type SandboxProcess } from '../support/sandbox-process.ts'
import { freePort } from '../support/serve-process.ts'

const COMMAND = fileURLToPath(new URL('../../scripts/sternpost', import.meta.url))
const NODE_LAUNCHER = fileURLToPath(new URL('../../scripts/node', import.meta.url))
const run = promisify(execFile)

interface InboxEntry {
  id: string
  from: string
  dkim: { result: string }
}

interface HookEntry {
  signature: string
  event: { event: string; data: Record<string, string> }
}

const withCurl = { skip: missingPrograms({ curl: ['curl'] }) }
t.test('the printed curl is accepted, the mail is captured and signed, the webhook arrives', withCurl, async (t) => {
  const { banner, folder, list, ask } = await startSandbox(t)
  const { stdout } = await run('sh', ['-c', banner.curl])
  const answer: unknown = JSON.parse(stdout)
  t.match(answer, { success: true, message_id: /^msg_[0-9a-hjkmnp-tv-z]{26}$/, timestamp: Number })
  t.same(Object.keys(answer as object), ['success', 'message_id', 'timestamp'])

  const [mail] = await list<InboxEntry>('/dev/inbox?wait=60s')
  t.match(mail, { dkim: { result: 'pass' } })
  const raw = Buffer.from(await (await fetch(new URL(`/dev/inbox/${mail?.id}/raw`, banner.base_url))).arrayBuffer())
  const verdict = await dkimVerify(raw, { resolver: await publishedKey(ask) })
  t.equal(verdict.results[0]?.status.result, 'pass', 'mailauth verifies the captured bytes')

  const [hook] = await list<HookEntry>('/dev/hooks/inspector?event=email.delivered&wait=60s')
  const messageId = (answer as { message_id: string }).message_id
  t.match(hook, { signature: 'valid', event: { event: 'email.delivered', data: { message_id: messageId } } })
  t.equal(statSync(join(folder, 'key')).mode & 0o777, 0o600)
  t.equal(readFileSync(join(folder, 'key'), 'utf8').trim(), banner.key)
})

t.test('hard@ bounces with type, code and description, and the lookup says the same', async (t) => {
  const { ask, send, list } = await startSandbox(t)
  const id = await send({ to: 'hard+signup@simulator.sternpost.test', from: 'you@sandbox.test' })
  const [hook] = await list<HookEntry>('/dev/hooks/inspector?event=email.bounced&wait=60s')
  t.match(hook, {
    signature: 'valid',
    event: {
      data: {
        message_id: id,
        recipient: 'hard+signup@simulator.sternpost.test',
        bounce_type: 'hard',
        bounce_code: /^5\.\d+\.\d+$/,
        bounce_description: /\w/,
      },
    },
  })
  const looked = await ask('GET', `/v1/email/${id}`)
  const attempts = [{ result: 'bounced' }]
  t.match(looked, { success: true, data: { state: 'bounced', bounce: { type: 'hard' }, attempts } })
})

t.test('a domain that is added is verified at once, one under unverified.test never', async (t) => {
  const { ask, send, list } = await startSandbox(t)
  for (const [domain, verified] of [
    ['shop.example.org', true],
    ['shop.unverified.test', false],
  ] as const) {
    await ask('POST', '/v1/domains', { domain })
    t.match(await ask('POST', `/api/v1/domains/${domain}/verify`), { success: true, data: { verified } })
  }
  t.match(
    await ask('GET', '/v1/domains/shop.unverified.test'),
    {
      data: {
        status: 'pending',
        records: [
          { purpose: 'dkim', status: 'failed', found: [/^v=DKIM1/], error: String, hint: /cut/ },
          {
            purpose: 'return_path',
            status: 'failed',
            found: ['another-host.unverified.test', /./],
            error: String,
            hint: String,
          },
          { purpose: 'spf', status: 'failed', found: [/^v=spf1/], error: /^SPF of /, hint: /include:/ },
          { purpose: 'dmarc', status: 'pending', found: [], error: String },
          { purpose: 'dmarc_reports', status: 'verified', zone: 'server' },
          { purpose: 'tracking', status: 'failed', found: ['another-host.unverified.test', '192.0.2.1'], hint: String },
        ],
      },
    },
    'a failed check says what was found, what is wrong and why',
  )
  await send({ to: 'someone@gmail.com', from: 'a@shop.example.org' })
  const [hook] = await list<HookEntry>('/dev/hooks/inspector?event=email.delivered&wait=60s')
  t.match(hook?.event.data, { isp: 'gmail' }, 'a well-known domain keeps its provider')
  const stranger = { to: 'a@b.org', from: 'a@nobody.org', subject: '', text: 'x' }
  const refused = await ask('POST', '/v1/email/send', stranger)
  t.match(refused, { success: false, error: { code: 'domain_not_verified', message: String, details: String } })
})

t.test('it starts again on its data with the same key; a taken port is one clear line', async (t) => {
  const first = await startSandbox(t)
  await first.stop()
  const again = await startSandbox(t, { folder: first.folder })
  t.equal(again.banner.key, first.banner.key)
  await again.stop()

  const port = await freePort()
  const blocker = createServer().listen(port, '127.0.0.1')
  await once(blocker, 'listening')
  t.teardown(() => void blocker.close())
  const refused = await fails(['sandbox', '--port', String(port), '--data', join(first.folder, 'other')])
  t.match(refused, { code: 75, stderr: new RegExp(String(port)) })
})

t.test('a sandbox that cannot start ends at once', async (t) => {
  const { folder } = await startSandbox(t)
  const again = await fails(['sandbox', '--json', '--data', folder, '--port', String(await freePort())])
  t.match(again, { code: 75, stderr: /stop it first/ })
  const mistaken = temporaryFolder(t)
  writeFileSync(join(mistaken, 'sternpost.yaml'), 'version: 1\nhostnme: x\n')
  writeFileSync(join(mistaken, 'pools.yaml'), 'version: 1\n')
  t.match(await fails(['sandbox', '--data', temporaryFolder(t), '--config', mistaken]), { code: 78, stderr: /hostnme/ })
  const noFolder = await fails(['sandbox', '--data', join(folder, 'key')])
  t.match(noFolder, { code: 74, stderr: /^sternpost: ENOTDIR: .*\n$/ })
})

t.test('a server whose output nobody reads stops in order', async (t) => {
  const words = [COMMAND, 'sandbox', '--data', temporaryFolder(t), '--port', String(await freePort())]
  const child = spawn('sh', words, { stdio: ['ignore', 'pipe', 'pipe'] })
  t.teardown(async () => end(child))
  let errors = ''
  child.stderr.on('data', (text: Buffer) => (errors += text.toString()))
  child.stdout.destroy()
  const [code] = await once(child, 'close')
  t.equal(code, 1)
  t.match(errors, /^sternpost: write EPIPE$/m)
})

t.test('the command says in one line what is wrong', async (t) => {
  const folder = temporaryFolder(t)
  const nowhere = join(folder, 'nowhere')
  t.match(await fails(['key', 'create', '--name', 'x', '--config', nowhere]), { code: 78, stderr: /nowhere/ })
  t.match(await fails(['check', '--config', folder]), { code: 78 })
  writeFileSync(join(folder, 'pools.yaml'), 'version: 1\npools: { default: { wieght: 1 } }\n')
  const checked = await fails(['check', '--config', folder])
  t.match(checked, { code: 78, stderr: /pools\.yaml:2:\d+: .*wieght/ })
  t.match(await fails(['nonsense']), { code: 64 })
  const { stdout: help } = await run('sh', [COMMAND, 'key', 'create', '--help'])
  t.match(help, /--scope <scope> [^(]*\(default:\s+send\)\n +--domain /, 'and no second default')
  const onDay = (day: string) => ['key', 'create', '--name', 'x', '--expires', day, '--config', join(folder, 'nowhere')]
  t.match(await fails(onDay('2027-02-30')), { code: 64, stderr: /"2027-02-30" is no date/ })
  t.match(await fails(onDay('2027-02-28')), { code: 78, stderr: /nowhere/ })
})

t.test('an old Node is refused before anything is loaded', async (t) => {
  const folder = temporaryFolder(t)
  const old = join(folder, 'node')
  writeFileSync(old, '#!/bin/sh\n[ "$1" = --version ] && { echo v20.20.2; exit 0; }\nexit 1\n', { mode: 0o755 })
  const launch = (node: string) =>
    run('sh', [NODE_LAUNCHER, 'x.ts'], { env: { ...process.env, STERNPOST_NODE: node } }).then(
      () => ({ code: 0, stderr: '' }),
      (error: { code: number; stderr: string }) => error,
    )
  const needed = 'sternpost: needs Node.js 22.19 or newer'
  t.match(await launch(old), { code: 78, stderr: `${needed}, found v20.20.2 at ${old}.` })
  const nowhere = join(folder, 'nowhere')
  t.match(await launch(nowhere), { code: 78, stderr: `${needed}, found none at ${nowhere}.` })
})

/** What the sandbox's DNS publishes for sandbox.test, as the API shows it, as a resolver for mailauth. */
async function publishedKey(ask: SandboxProcess['ask']): Promise<(name: string, type: string) => Promise<string[][]>> {
  const { data } = (await ask('POST', '/v1/domains/sandbox.test/verify')) as {
    data: { records: { purpose: string; name: string; value: string }[] }
  }
  const record = data.records.find((entry) => entry.purpose === 'dkim')
  return async (name) => {
    if (name !== record?.name) throw Object.assign(new Error('not found'), { code: 'ENOTFOUND' })
    return [[record.value]]
  }
}

async function fails(words: string[]): Promise<{ code: number; stderr: string }> {
  return run('sh', [COMMAND, ...words]).then(
    ({ stderr }) => ({ code: 0, stderr }),
    (error: { code: number; stderr: string }) => ({ code: error.code, stderr: error.stderr }),
  )
}
