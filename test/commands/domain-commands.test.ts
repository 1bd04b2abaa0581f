/**
 * `sternpost domain …` as an administrator runs it: the real verbs over a real admin socket, with small features
 * behind it. Standard output holds the result alone; exit codes are those of commands/README.md "Exit codes".
 */
import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { DAY } from '../../src/base/clock.ts'
import { ServiceError } from '../../src/base/errors.ts'
import type { HttpFeatures } from '../../src/http/exchange/features.ts'
import type { DomainView } from '../../src/senders/domain-view.ts'
import { shareStore } from '../http/api-server.ts'
import type { Ended } from './command-runner.ts'
import { commandServer, writeServerFiles } from './command-server.ts'
import { sampleAuthentication, sampleDomain, sampleRecord, verifiedDomain } from './domain-samples.ts'

const COMMAND = fileURLToPath(new URL('../../scripts/sternpost', import.meta.url))

interface Server {
  folder: string
  /** What reached the features, in order. */
  calls: unknown[]
  run(...words: string[]): Promise<Ended>
}

async function serverWith(t: Test, domains: Partial<HttpFeatures['domains']> = {}): Promise<Server> {
  const calls: unknown[] = []
  const { folder, run } = await commandServer(t, { features: { domains: { ...testDomains(calls), ...domains } } })
  return { folder, calls, run: (...words) => run('domain', ...words) }
}

/** Knows acme.com, not verified, and nothing else. */
function testDomains(calls: unknown[]): HttpFeatures['domains'] {
  const known = (name: string): DomainView => {
    if (name !== 'acme.com') throw new ServiceError('not_found', `domain ${name}`)
    return sampleDomain()
  }
  return {
    async add(request) {
      calls.push(request)
      return { record: sampleDomain({ domain: request.name }), isNew: true }
    },
    verify: async (name) => ({ record: known(name), isRepeated: false }),
    find: async (name) => (name === 'acme.com' ? sampleDomain() : null),
    async list(query) {
      calls.push(query)
      return query.after === null
        ? { domains: [sampleDomain()], next: 'a&b' }
        : { domains: [verifiedDomain('other.com')], next: null }
    },
    update: async (name) => known(name),
    queuedMessages: async (name) => (known(name).domain === name ? 12 : 0),
    async remove(name, options) {
      calls.push(options)
      return { domain: known(name).domain, deleted: true, queued_messages: 12 }
    },
    async rotateDkim(name) {
      const domain = known(name)
      const next = sampleRecord({ role: 'next', name: 'ps2._domainkey.acme.com' })
      return { ...domain, records: [...domain.records, next] }
    },
    async authentication(name, query) {
      calls.push(query)
      return sampleAuthentication(known(name).domain)
    },
    link: async (name) => ({ path: `${known(name).domain}/1795200000-mac`, expiresAt: 1_795_200_000_000 }),
    linked: async () => null,
    zoneFile: async (name) => `$ORIGIN ${known(name).domain}.\n`,
  }
}

/** The installed command, as a process of its own. */
function scriptEnds(...words: string[]): Promise<Ended> {
  return new Promise((resolve) => {
    execFile('sh', [COMMAND, ...words], (error, stdout, stderr) => {
      resolve({ code: typeof error?.code === 'number' ? error.code : 0, stdout, stderr })
    })
  })
}

shareStore(t)

t.test('add prints the records to publish and the next command', async (t) => {
  const { folder, calls, run } = await serverWith(t)
  const plain = await run('add', 'shop.example')
  t.equal(plain.code, 0)
  t.match(plain.stdout, /^dkim\trequired\tTXT\tps1\._domainkey\t/)
  t.equal(plain.stdout.trimEnd().split('\n').length, 3)
  t.match(
    plain.stderr,
    'shop.example is pending. Publish these records, then:\n' +
      `  sternpost domain check shop.example --wait 10m --config ${folder}\n`,
  )
  t.match(calls[0], { name: 'shop.example', returnPath: undefined, allowSubdomains: undefined })

  const keyFile = join(folder, 'own.pem')
  writeFileSync(keyFile, 'PEM')
  const flags = ['--return-path', 'b', '--tracking-domain', 'x', '--selector', 's', '--pool', 'default']
  const all = await run('add', 'acme.com', ...flags, '--key-file', keyFile, '--allow-subdomains', '--json', '--quiet')
  t.equal(all.stderr, '')
  t.match(JSON.parse(all.stdout), { domain: 'acme.com', status: 'pending', records: [{ purpose: 'dkim' }] })
  t.same(calls[1], {
    name: 'acme.com',
    returnPath: 'b',
    trackingDomain: 'x',
    tracking: undefined,
    selector: 's',
    privateKeyPem: 'PEM',
    allowSubdomains: true,
    ipPool: 'default',
  })
  const again = await serverWith(t, { add: async () => ({ record: verifiedDomain(), isNew: false }) })
  t.match(await again.run('add', 'acme.com'), { code: 0, stderr: 'acme.com is there already, and verified.\n' })
  const noFile = await run('add', 'acme.com', '--key-file', join(folder, 'nowhere.pem'))
  t.match(noFile, { code: 74, stdout: '', stderr: /^sternpost: --key-file: .*nowhere\.pem/ })
})

t.test('list follows the pages; the default is every state', async (t) => {
  const { calls, run } = await serverWith(t)
  const plain = await run('list')
  t.equal(plain.code, 0)
  t.same(
    plain.stdout.split('\n').map((line) => line.split('\t').slice(0, 4)),
    [['acme.com', 'pending', 'no', 'default'], ['other.com', 'verified', 'yes', 'default'], ['']],
  )
  t.same(calls, [
    { status: 'all', limit: 100, after: null },
    { status: 'all', limit: 100, after: 'a&b' },
  ])
  const document: unknown = JSON.parse((await run('list', '--status', 'failed', '--json')).stdout)
  t.match(document, [{ domain: 'acme.com', created_at: 1_795_219_200 }, { domain: 'other.com' }])
  t.match(calls[2], { status: 'failed' })
  t.match(await run('list', '--status', 'broken'), { code: 64, stdout: '', stderr: /Allowed choices are all, pending/ })
  const empty = await serverWith(t, { list: async () => ({ domains: [], next: null }) })
  t.match(await empty.run('list'), { code: 0, stdout: '', stderr: /sternpost domain add acme\.com/ })
  t.match(await empty.run('list', '--json'), { code: 0, stdout: '[]\n' })
})

t.test('show and check say what was found, what is wrong and why', async (t) => {
  const { run } = await serverWith(t)
  for (const verb of ['show', 'check']) {
    const { code, stdout } = await run(verb, 'acme.com')
    t.equal(code, verb === 'show' ? 0 : 1, 'a domain that is not verified fails the check')
    t.match(stdout, /^acme\.com {2}pending, cannot send\n/)
    t.match(stdout, '    error  the record at ps1._domainkey.acme.com is no DKIM key\n    hint   cut at 255 bytes\n')
    t.match(JSON.parse((await run(verb, 'acme.com', '--json')).stdout), { status: 'pending', verified: false })
  }
  const good = await serverWith(t, { verify: async () => ({ record: verifiedDomain(), isRepeated: false }) })
  t.match(await good.run('check', 'acme.com'), { code: 0, stdout: /^acme\.com {2}verified, can send\n/, stderr: '' })
})

t.test('check --wait ends with 0 once the domain is verified and with 75 when the time is over', async (t) => {
  let checks = 0
  const { run } = await serverWith(t, {
    verify: async () => ({ record: ++checks % 2 === 1 ? sampleDomain() : verifiedDomain(), isRepeated: false }),
  })
  const found = await run('check', 'acme.com', '--wait', '1s')
  t.match(found, { code: 0, stdout: /verified, can send/ })
  t.equal(found.stderr, 'acme.com is pending: dkim failed, return_path pending, spf pending\n')
  t.equal(checks, 2)
  const never = await serverWith(t)
  const quiet = await never.run('check', 'acme.com', '--wait', '100ms', '--quiet')
  t.match(quiet, { code: 75, stdout: /pending/, stderr: '' })
  t.match(await never.run('check', 'acme.com', '--wait', '10'), { code: 64, stderr: /--wait: .*not a duration/ })
  t.match(await never.run('check', 'acme.com', '--wait', '10'), { stdout: '' })
})

t.test('dns prints the records in each format', async (t) => {
  const { run } = await serverWith(t)
  const dns = (format: string): Promise<Ended> => run('dns', 'acme.com', '--format', format)
  t.match(await run('dns', 'acme.com'), { code: 0, stdout: /^dkim\trequired\tTXT\t/, stderr: '' })
  const [zone, json, cloudflare, terraform, xml, alsoJson, nowhere] = await Promise.all([
    dns('zone'),
    dns('json'),
    dns('cloudflare'),
    dns('terraform'),
    dns('xml'),
    run('dns', 'acme.com', '--json'),
    run('dns', 'nope.com', '--format', 'zone'),
  ])
  t.match(zone, { code: 0, stdout: '$ORIGIN acme.com.\n' })
  for (const { stdout } of [json, alsoJson]) t.match(JSON.parse(stdout), [{ type: 'TXT' }, { type: 'CNAME' }])
  t.match(JSON.parse(cloudflare.stdout), { posts: [{ type: 'TXT' }] })
  t.match(terraform.stdout, 'resource "aws_route53_record"')
  t.match(xml, { code: 64, stdout: '' })
  t.match(nowhere, { code: 1, stdout: '', stderr: /^sternpost: Not found\. domain nope\.com\. Fix: the verb `list` / })
})

t.test('dmarc says who sends as the domain, and who of them is not yours', async (t) => {
  const { calls, run } = await serverWith(t)
  const { code, stdout, stderr } = await run('dmarc', 'acme.com', '--days', '7')
  t.same({ code, stderr }, { code: 0, stderr: '' })
  t.equal(
    stdout,
    [
      '3 sources send as acme.com; 203.0.113.9 is not yours.',
      '  2026-10-23 to 2026-11-21, as reports claim: messages 1204, passed 1200, failed 4',
      '  policy p=none',
      '  reports 3, of google.com, Yahoo',
      '  hint   publish p=quarantine',
      '',
      '203.0.113.10\tyes\t1000\t1000\t0\t1000\t0\t0\t0\t2026-11-20',
      '203.0.113.11\tyes\t200\t200\t0\t200\t0\t0\t0\t2026-11-20',
      '203.0.113.9\tno\t4\t0\t4\t0\t0\t0\t4\t2026-11-20',
      '',
      'TLS to acme.com: sessions that were well 5326, that failed 100',
      '  certificate-expired  100',
      '',
    ].join('\n'),
  )
  const [{ from, to, isWhole } = { from: '', to: '', isWhole: false }] = calls as Record<string, string>[]
  t.equal(Date.parse(String(to)) - Date.parse(String(from)), 6 * DAY, 'today is the last of the days')
  t.equal(isWhole, true, 'an administrator is told of the whole server')
  t.match(JSON.parse((await run('dmarc', 'acme.com', '--json')).stdout), { dmarc: { reports: 3 } })
  t.match(await run('dmarc', 'nope.com'), { code: 1, stdout: '', stderr: /^sternpost: Not found\. domain nope\.com\./ })
  t.match(await run('dmarc', 'acme.com', '--days', 'x'), { code: 64, stdout: '' })
  const none = { ...sampleAuthentication().dmarc, reports: 0, reporters: [], sources: [] }
  const quiet = await serverWith(t, {
    authentication: async () => sampleAuthentication('acme.com', { dmarc: none, policy: null, hint: null, tls: [] }),
  })
  t.match(await quiet.run('dmarc', 'acme.com'), {
    stdout: /^No DMARC report about acme\.com came\.\n[^\n]*\n.*not found/,
  })
})

t.test('remove shows the count first and needs --yes', async (t) => {
  const { calls, run } = await serverWith(t)
  const asked = await run('remove', 'acme.com')
  t.equal(asked.code, 64)
  t.equal(asked.stdout, 'acme.com: waiting mail, would be delivered with its keys: 12\n')
  t.match(asked.stderr, 'sternpost domain remove acme.com --yes')
  t.match(await run('remove', 'acme.com', '--purge'), { code: 64, stderr: /remove acme\.com --purge --yes/ })
  t.match(JSON.parse((await run('remove', 'acme.com', '--json')).stdout), { deleted: false, queued_messages: 12 })
  t.same(calls, [], 'nothing was removed')
  const done = await run('remove', 'acme.com', '--yes')
  const stdout = 'acme.com is removed; waiting mail, to be delivered with its keys: 12\n'
  t.match(done, { code: 0, stdout, stderr: '' })
  t.match(await run('remove', 'acme.com', '--yes', '--purge'), { code: 0, stdout: /to be canceled: 12/ })
  t.match(JSON.parse((await run('remove', 'acme.com', '--yes', '--json')).stdout), { deleted: true })
  t.same(calls, [{ purge: false }, { purge: true }, { purge: false }])
  t.match(await run('remove', 'nope.com', '--yes'), { code: 1, stderr: /^sternpost: Not found\. domain nope\.com\. / })
})

t.test('dkim rotate prints the new record; a second rotation says why not', async (t) => {
  const { run } = await serverWith(t)
  const { code, stdout, stderr } = await run('dkim', 'rotate', 'acme.com')
  t.equal(code, 0)
  t.match(stdout, /^dkim\tnext key\tTXT\tx\tps2\._domainkey\.acme\.com\t[^\n]*\n$/)
  t.match(stderr, 'Publish this beside the old key')
  t.match(JSON.parse((await run('dkim', 'rotate', 'acme.com', '--json')).stdout), { domain: 'acme.com' })
  const rotateDkim = async (): Promise<never> => Promise.reject(new ServiceError('conflict', 'under way'))
  const busy = await serverWith(t, { rotateDkim })
  t.match(await busy.run('dkim', 'rotate', 'acme.com'), {
    code: 1,
    stdout: '',
    stderr: 'sternpost: The request conflicts with the current state. under way\n',
  })
})

t.test('what goes wrong is one clear line and a code', async (t) => {
  const { folder, run } = await serverWith(t)
  t.match(await run('show', '../keys'), { code: 1, stdout: '', stderr: /^sternpost: Not found\. domain \.\.\/keys\. / })
  t.match(await run('show', 'acme.com?x'), { code: 1, stderr: /Not found/ })
  const misuses = [
    ['show'],
    ['check'],
    ['dkim', 'rotate'],
    ['nonsense'],
    ['show', 'a.b', 'c.d'],
    ['show', '--nonsense'],
  ]
  for (const { code, stdout } of await Promise.all(misuses.map((words) => run(...words)))) {
    t.same({ code, stdout }, { code: 64, stdout: '' })
  }
  const help = await scriptEnds('domain', 'dkim', 'rotate', '--help')
  t.match(help, { code: 0, stdout: /Example:\n {2}sternpost domain dkim rotate acme\.com/ })
  t.match(await scriptEnds('domain', 'dns', 'acme.com', '--format', 'zone', '--config', folder), {
    code: 0,
    stdout: '$ORIGIN acme.com.\n',
    stderr: '',
  })
  writeServerFiles(folder, join(folder, 'no.sock'))
  const stderr = /^sternpost: no server answers at [^\n]*no\.sock[^\n]*\n$/
  t.match(await run('list'), { code: 69, stdout: '', stderr })
})
