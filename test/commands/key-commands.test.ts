/**
 * `sternpost key …`, and how every verb finds its server and says what went wrong, against the real interface.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { keyNamed, shareStore } from '../http/api-server.ts'
import { commandServer, sternpost } from './command-server.ts'

shareStore(t)

const KEY = /^sk_live_[0-9A-Za-z]{40}$/

interface KeyDocument {
  id: string
  key: string
  [name: string]: unknown
}

t.test('create takes every limit; list shows them and never a key', async (t) => {
  const { run } = await commandServer(t)
  const plain = await run('key', 'create', '--name', 'plain')
  t.match(plain, { code: 0, stdout: /^sk_live_[0-9A-Za-z]{40}\n$/, stderr: /only time the key key_\w+ is shown/ })
  t.match(await run('key', 'create', '--name', 'quiet', '--quiet'), { code: 0, stderr: '' })
  const limits = ['--scope', 'send', '--scope', 'stats', '--domain', 'acme.com', '--ip', '192.0.2.0/24']
  const all = await run('key', 'create', '--name', 'all', ...limits, '--expires', '2199-01-31', '--test', '--json')
  t.match(JSON.parse(all.stdout), {
    id: /^key_/,
    mode: 'test',
    key: /^sk_test_/,
    scopes: ['send', 'stats'],
    domains: ['acme.com'],
    allowed_ips: ['192.0.2.0/24'],
    expires_at: Date.UTC(2199, 0, 31, 23, 59, 59) / 1_000,
  })
  const { stdout } = await run('key', 'list')
  const row =
    stdout
      .split('\n')
      .find((line) => line.includes('\tall\ttest\t'))
      ?.split('\t') ?? []
  t.match(row, [/^key_/, 'all', 'test', /^…\w{4}$/, 'send,stats', 'acme.com', /^\d/, /^2199-/, 'never', 'active'])
  t.notOk(stdout.includes(plain.stdout.trim()), 'no key')
  const listed: KeyDocument[] = JSON.parse((await run('key', 'list', '--json')).stdout)
  t.match(
    listed.find(({ name }) => name === 'all'),
    { last4: /^\w{4}$/, revoked_at: null },
  )
  t.ok(listed.every(({ key }) => key === undefined))
  t.match(await run('key', 'create', '--name', 'x', '--scope', 'fly'), { code: 1, stdout: '', stderr: /scopes/ })
  t.match(await run('key', 'create'), { code: 64, stdout: '' })
})

t.test('a domain that the server does not have is told wherever one is named', async (t) => {
  const { run } = await commandServer(t)
  const stderr = /^warning: acme\.cmo is no sending domain of this server$/m
  for (const words of [
    ['key', 'create', '--name', 'slip'],
    ['webhook', 'add', 'https://127.0.0.1/hooks'],
    ['suppression', 'add', 'ada@example.net'],
  ]) {
    t.match(await run(...words, '--domain', 'acme.cmo'), { code: 0, stderr }, words.join(' '))
    t.notMatch((await run(...words, '--domain', 'acme.com')).stderr, /warning/, 'one that it has is not')
  }
})

t.test('revoke and rotate show the key first and need --yes', async (t) => {
  const { run } = await commandServer(t)
  const limits = ['--scope', 'stats', '--domain', 'acme.com']
  const made = async (): Promise<KeyDocument> =>
    JSON.parse((await run('key', 'create', '--name', 'shop', ...limits, '--json')).stdout)
  const stateOf = async (id: string): Promise<string | undefined> =>
    (await run('key', 'list')).stdout
      .split('\n')
      .find((line) => line.startsWith(id))
      ?.split('\t')
      .at(-1)
  const old = await made()
  const asked = await run('key', 'revoke', old.id)
  t.match(asked, { code: 64, stdout: /^1 key would be revoked: key_\w+ \(shop, live, …\w{4}\), last used never\n$/ })
  t.match(asked.stderr, `sternpost key revoke ${old.id} --yes`)
  t.equal(await stateOf(old.id), 'active')
  const revoked = await run('key', 'revoke', old.id, '--json', '--yes')
  t.match(JSON.parse(revoked.stdout), { id: old.id, revoked_at: Number })
  t.equal(await stateOf(old.id), 'revoked')

  const first = await made()
  t.match(await run('key', 'rotate', first.id), { code: 64, stdout: /would be replaced/ })
  t.equal(await stateOf(first.id), 'active')
  const rotated = await run('key', 'rotate', first.id, '--yes')
  t.match(rotated, { code: 0, stdout: /^sk_live_\w{40}\n$/, stderr: new RegExp(`${first.id} .*: revoked\n$`) })
  t.equal(await stateOf(first.id), 'revoked')
  t.match(await run('key', 'rotate', first.id, '--yes'), { code: 1, stdout: '', stderr: /revoked already/ })
  const second = await made()
  const { stdout } = await run('key', 'rotate', second.id, '--yes', '--json')
  t.match(JSON.parse(stdout), { key: KEY, name: 'shop', scopes: ['stats'], domains: ['acme.com'], replaces: second.id })
  const unknown = await run('key', 'revoke', 'key_nothing', '--yes')
  t.match(unknown, { code: 1, stderr: /^sternpost: Not found\. key key_nothing\. Fix: the verb `list` / })
})

t.test('a server elsewhere is named by flags, by the environment or by a file', async (t) => {
  const { api } = await commandServer(t)
  const key = keyNamed('admin')
  const nobody = { STERNPOST_CONFIG: '/nonexistent', HOME: t.testdir({}) }
  const list = ['key', 'list', '--json']
  for (const path of ['', '/', '/v1', '/api/v1/']) {
    const url = `http://127.0.0.1:${api.port}${path}`
    t.match(await sternpost([...list, '--url', url, '--api-key', key], nobody), { code: 0, stderr: '' }, path)
  }
  const url = `http://127.0.0.1:${api.port}/v1`
  t.match(await sternpost(list, { ...nobody, STERNPOST_URL: url, STERNPOST_API_KEY: key }), { code: 0 })
  t.match(await sternpost([...list, '--url', url], { ...nobody, STERNPOST_API_KEY: key }), { code: 0 })
  t.match(await sternpost([...list, '--url', url], nobody), { code: 64, stderr: /--api-key, or set STERNPOST_API_KEY/ })
  t.match(await sternpost([...list, '--api-key', key], nobody), { code: 64, stderr: /add --url/ })
  const strange = await sternpost([...list, '--url', 'ftp://x', '--api-key', key], nobody)
  t.match(strange, { code: 64, stderr: /"ftp:\/\/x" is no/ })
  t.match(await sternpost([...list, '--url', url, '--api-key', 'a\nb'], nobody), { code: 64, stderr: /no API key/ })

  const file = join(nobody.HOME, '.config', 'sternpost', 'config.yaml')
  mkdirSync(join(file, '..'), { recursive: true })
  writeFileSync(file, `url: ${url}\napi_key: ${key}\n`, { mode: 0o600 })
  const atHome = { HOME: nobody.HOME, STERNPOST_CONFIG: '' }
  t.match(await sternpost(list, atHome), { code: 0 })
  t.match(await sternpost(list, nobody), { code: 78 }, 'the environment is nearer than the file')
  chmodSync(file, 0o644)
  t.match(await sternpost(list, atHome), { code: 78, stderr: /others may read it\. Fix: chmod 600/ })
  writeFileSync(file, 'url: [\n')
  chmodSync(file, 0o600)
  t.match(await sternpost(list, atHome), { code: 78, stderr: /expected the keys url and api_key/ })
})

t.test(
  'a mistake in sternpost.yaml leaves its server within reach, where the file still says where it is',
  async (t) => {
    const { folder, run } = await commandServer(t)
    const file = join(folder, 'sternpost.yaml')
    const text = readFileSync(file, 'utf8')
    writeFileSync(file, text.replace('{', '{"lsiten":{},'))
    const told = await run('key', 'list', '--json')
    t.match(told, { code: 0, stderr: /unknown key "lsiten"[^]*The server at .*admin\.sock is asked all the same\.\n$/ })
    for (const lost of [text.replace('admin_socket', 'admin_sokcet'), `${text}]`]) {
      writeFileSync(file, lost)
      t.match(await run('key', 'list'), { code: 78, stdout: '' }, 'never another one, which has the usual place')
    }
  },
)

t.test('what the server refuses ends with a code that says what kind it is', async (t) => {
  const { api } = await commandServer(t)
  const remote = (port: number, key: string): string[] => ['--url', `http://127.0.0.1:${port}`, '--api-key', key]
  const ask = (port: number, key = keyNamed('read')) => sternpost(['key', 'list', ...remote(port, key)])
  t.match(await ask(api.port), { code: 77, stdout: '', stderr: /^sternpost: .*admin.*Fix: use a key that may/ })
  const wrong = `sk_live_${'x'.repeat(40)}`
  t.match(await ask(api.port, wrong), { code: 77, stderr: /Fix: give the whole key/ })
  const status = await sternpost(['status', ...remote(api.port, wrong)])
  t.match(status, { code: 77, stdout: '', stderr: /Fix: give the whole key/ }, 'nothing is left out for a wrong key')
  t.match(await ask(1), { code: 69, stderr: /^sternpost: no server answers at http:\/\/127\.0\.0\.1:1 .*check --url/ })

  let answer = { status: 200, body: '<html>' }
  const other = createServer((_, response) => response.writeHead(answer.status).end(answer.body)).listen(0, '127.0.0.1')
  t.teardown(() => void other.close())
  await new Promise((resolve) => other.on('listening', resolve))
  const { port } = other.address() as AddressInfo
  t.match(await ask(port), { code: 70, stderr: /no JSON/ })
  answer = { status: 502, body: '<html>' }
  t.match(await ask(port), { code: 69, stderr: /^sternpost: a proxy answers .*status 502\)\. Fix: see that/ })
  const exits = { unavailable: 75, rate_limited: 75, internal_error: 70, conflict: 1 }
  for (const [code, exit] of Object.entries(exits)) {
    const error = { code, message: 'No.\u001b[2J', details: '' }
    answer = { status: 500, body: JSON.stringify({ success: false, error }) }
    t.match(await ask(port), { code: exit, stdout: '', stderr: /^sternpost: No\.\\u001b\[2J/ }, code)
  }
  answer = { status: 200, body: '{"success":true,"data":[{"odd":1}],"next_cursor":null}' }
  t.match(await ask(port), { code: 70, stderr: /lacks id, name, .*scopes, domains/ })
})
