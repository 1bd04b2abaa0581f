/**
 * A server with all its names and addresses right; then one fault after the other is planted in the DNS, the network,
 * the files and the server, and `sternpost doctor` must find each, and nothing else once it is mended. Run by
 * `doctor.test.ts` in a network namespace.
 */
import { execFileSync } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { chmodSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { z } from 'zod'
import type { DoctorReport } from '../../src/commands/server/doctor.ts'
import { reverseName } from '../../src/egress/ips/ip-facts.ts'
import { sternpost } from '../commands/command-server.ts'
import {
  DOMAINS,
  FIRST,
  HOSTNAME,
  ip,
  IPV6,
  PROVIDER_HOST,
  SECOND,
  SPF_OF_ALL,
  startDoctorWorld,
  TLS_NAMES,
} from '../support/doctor-world.ts'
import { until } from '../support/until.ts'

type Document = Parameters<typeof z.fromJSONSchema>[0]
const schemaFile = new URL('../fixtures/commands/doctor.schema.json', import.meta.url)
const schema = z.fromJSONSchema(JSON.parse(readFileSync(schemaFile, 'utf8')) as Document)

const world = await startDoctorWorld()
t.teardown(() => world.close())
const { zone, appliance, tls } = world
const { folder, clock } = appliance
const hasIpv6 = world.ips.some(({ address }) => address === IPV6)

interface Seen {
  code: number
  report: DoctorReport
}

async function doctor(...words: string[]): Promise<Seen> {
  const { code, stdout, stderr } = await sternpost(['doctor', ...words, '--json', '--config', folder])
  if (stdout === '') throw new Error(`no document: ${stderr}`)
  const report = JSON.parse(stdout) as DoctorReport
  const fit = schema.safeParse(report)
  if (!fit.success) throw new Error(`the document does not fit its schema: ${fit.error.message}`)
  return { code, report }
}

function problems({ report }: Seen): string[] {
  return report.checks
    .filter(({ result }) => result === 'warn' || result === 'fail')
    .map(({ result, check, subject }) => [result, check, ...(subject === null ? [] : [subject])].join(' '))
}

/** Named by the administrator too: the API is served with TLS alone. */
async function addDomains(): Promise<void> {
  for (const name of DOMAINS) {
    await appliance.parts.domains.add({ name })
    const { records } = (await appliance.parts.domains.find(name)) ?? { records: [] }
    for (const { name: owner, type, value, via } of records) {
      if (via === undefined) zone.set(owner, type === 'CNAME' ? { CNAME: value } : { TXT: [value] })
    }
    clock.leap(11_000)
    const { record } = await appliance.parts.domains.verify(name)
    if (!record.verified) throw new Error(`${name} is not verified: ${JSON.stringify(record.records)}`)
  }
}

t.test('a clean server has no problem', async (t) => {
  await addDomains()
  clock.leap(11_000)
  const seen = await doctor()
  t.same(problems(seen), [])
  t.equal(seen.code, 0)
  t.equal(seen.report.server, 'running')
  const checked = (check: string): (string | null)[] =>
    seen.report.checks.filter((each) => each.check === check && each.result === 'ok').map(({ subject }) => subject)
  const all = world.ips.map(({ address }) => address)
  for (const check of ['ip-present', 'ip-source', 'port25', 'ptr', 'fcrdns', 'blocklist', 'warmup']) {
    t.same(checked(check), all, check)
  }
  for (const check of ['domain-dkim', 'domain-spf', 'domain-return-path', 'domain-dmarc']) {
    t.same(checked(check).toSorted(), DOMAINS.toSorted(), check)
  }
  t.equal(checked('listeners').length, (hasIpv6 ? 5 : 4) + 1, 'every door, and the metrics')
  t.match(await metrics(), /sternpost_health_check_status\{check="ptr"\} 0/)
})

async function metrics(): Promise<string> {
  return appliance.parts.metrics.text()
}

interface Fault {
  name: string
  /** What is asked for. */
  words: string[]
  /** Returns what mends it. */
  plant(): Promise<() => unknown> | (() => unknown)
  finds: string[]
  code: 1 | 2
  /** In what is seen, or in the fix. */
  says?: RegExp
}

/** Changes the DNS; the earlier records come back. */
function inZone(name: string, now: Parameters<typeof zone.set>[1], before: Parameters<typeof zone.set>[1]) {
  return (): (() => unknown) => {
    zone.set(name, now)
    return () => zone.set(name, before)
  }
}

function inFile(name: string, change: (text: string) => string): () => () => unknown {
  return () => {
    const file = join(folder, name)
    const before = readFileSync(file, 'utf8')
    writeFileSync(file, change(before))
    return () => writeFileSync(file, before)
  }
}

const LISTED = `11.113.0.203.zen.spamhaus.org`
const own = { A: [FIRST], ...(hasIpv6 ? { AAAA: [IPV6] } : {}) }

const FAULTS: Fault[] = [
  {
    name: 'an IPv4 address without a reverse name',
    words: ['ptr'],
    plant: inZone(reverseName(SECOND), undefined, { PTR: ['mta2.sternpost.test'] }),
    finds: [`fail ptr ${SECOND}`],
    code: 2,
    says: /set the reverse DNS of 203\.0\.113\.11 to mta2\.sternpost\.test/,
  },
  ...(hasIpv6
    ? [
        {
          name: 'an IPv6 address without a reverse name',
          words: ['ptr'],
          plant: inZone(reverseName(IPV6), undefined, { PTR: ['mta6.sternpost.test'] }),
          finds: [`fail ptr ${IPV6}`],
          code: 2 as const,
          says: /ip6\.arpa\. PTR mta6/,
        },
      ]
    : []),
  {
    name: 'a reverse name that is not the EHLO name',
    words: ['fcrdns'],
    plant: inZone(reverseName(SECOND), { PTR: ['static-11.hoster.test'] }, { PTR: ['mta2.sternpost.test'] }),
    finds: [`fail fcrdns ${SECOND}`],
    code: 2,
    says: /the reverse name is static-11\.hoster\.test/,
  },
  {
    name: 'an EHLO name that leads elsewhere',
    words: ['fcrdns'],
    plant: inZone('mta2.sternpost.test', { A: ['203.0.113.99'] }, { A: [SECOND] }),
    finds: [`fail fcrdns ${SECOND}`],
    code: 2,
    says: /mta2\.sternpost\.test\. A 203\.0\.113\.11/,
  },
  {
    name: 'no name for tracked links',
    words: ['names'],
    plant: inZone(`track.${HOSTNAME}`, undefined, own),
    finds: [`fail names track.${HOSTNAME}`],
    code: 2,
    says: /add the record: track/,
  },
  {
    name: 'SPF without one of the IPs',
    words: ['names'],
    plant: inZone(`spf.${HOSTNAME}`, { TXT: [SPF_OF_ALL.replace(` ip4:${SECOND}`, '')] }, { TXT: [SPF_OF_ALL] }),
    finds: [`fail names ${SECOND}`],
    code: 2,
    says: /ip4:203\.0\.113\.10 ip4:203\.0\.113\.11/,
  },
  {
    name: 'bounces that go to another server',
    words: ['inbound'],
    plant: inZone(
      `rp.${HOSTNAME}`,
      { MX: ['10 mx.other.test'] },
      { TXT: [`v=spf1 include:spf.${HOSTNAME} -all`], MX: [`10 ${HOSTNAME}`] },
    ),
    finds: [`fail inbound rp.${HOSTNAME}`],
    code: 2,
    says: /its mail goes to mx\.other\.test/,
  },
  {
    name: 'an IP on a blocklist',
    words: ['blocklist'],
    plant: inZone(LISTED, { A: ['127.0.0.4'], TXT: ['listed, see https://check.spamhaus.org/'] }, undefined),
    finds: [`fail blocklist ${SECOND}`],
    code: 2,
    says: /is listed by zen\.spamhaus\.org \(127\.0\.0\.4\): listed, see/,
  },
  {
    name: 'a blocklist that refuses this resolver',
    words: ['blocklist'],
    plant: inZone(LISTED, { A: ['127.255.255.254'] }, undefined),
    finds: [`warn blocklist ${SECOND}`],
    code: 1,
    says: /does not answer this resolver \(127\.255\.255\.254\)/,
  },
  {
    name: 'outbound port 25 closed for one IP',
    words: ['port25'],
    plant() {
      const rule = ['pref', '5', 'from', SECOND, 'to', PROVIDER_HOST]
      ip('rule', 'add', ...rule, 'unreachable')
      return () => ip('rule', 'del', ...rule)
    },
    finds: [`fail port25 ${SECOND}`],
    code: 2,
    says: /3 of 3 mail hosts failed/,
  },
  {
    name: 'a rule that puts another address in the place of an IP',
    words: ['ip-source', '--ip', SECOND],
    plant() {
      world.mailHosts.see('203.0.113.77')
      return () => world.mailHosts.see(null)
    },
    finds: [`fail ip-source ${SECOND}`],
    code: 2,
    says: /mx\.provider\.test sees 203\.0\.113\.77/,
  },
  {
    name: 'an IP that is not on this machine',
    words: ['ip-present'],
    plant() {
      ip('addr', 'del', `${SECOND}/32`, 'dev', 'lo')
      return () => ip('addr', 'add', `${SECOND}/32`, 'dev', 'lo')
    },
    finds: [`fail ip-present ${SECOND}`],
    code: 2,
    says: /ip addr add 203\.0\.113\.11\/32/,
  },
  {
    name: 'a certificate that ends in five days',
    words: ['tls'],
    async plant() {
      const before = { certificate: readFileSync(tls.certificate), key: readFileSync(tls.key) }
      execFileSync(
        'openssl',
        [
          'req',
          '-x509',
          '-newkey',
          'ec',
          '-pkeyopt',
          'ec_paramgen_curve:P-256',
          '-nodes',
          '-days',
          '5',
          '-subj',
          '/CN=x',
          '-addext',
          `subjectAltName=${TLS_NAMES.map((name) => `DNS:${name}`).join(',')}`,
          '-keyout',
          tls.key,
          '-out',
          tls.certificate,
        ],
        { stdio: 'ignore' },
      )
      await sternpost(['reload', '--config', folder])
      return async () => {
        writeFileSync(tls.certificate, before.certificate)
        writeFileSync(tls.key, before.key)
        await sternpost(['reload', '--config', folder])
      }
    },
    finds: TLS_NAMES.map((name) => `warn tls ${name}`),
    code: 1,
    says: /in [45] days/,
  },
  {
    name: 'a certificate that is shown without its issuer',
    words: ['tls'],
    async plant() {
      const chain = readFileSync(tls.certificate, 'utf8')
      writeFileSync(tls.certificate, chain.slice(0, chain.indexOf('-----BEGIN', 1)))
      await sternpost(['reload', '--config', folder])
      return async () => {
        writeFileSync(tls.certificate, chain)
        await sternpost(['reload', '--config', folder])
      }
    },
    finds: TLS_NAMES.map((name) => `warn tls ${name}`),
    code: 1,
    says: /fullchain\.pem/,
  },
  {
    name: 'files that the server has not taken over',
    words: ['config'],
    plant: inFile('pools.yaml', (text) => text.replace('"warmed": true', '"warmed": true, "weight": 7')),
    finds: ['warn config'],
    code: 1,
    says: /sternpost reload/,
  },
  {
    name: 'files with a mistake',
    words: ['config'],
    plant: inFile('pools.yaml', (text) => text.replace('"default_pool": "default"', '"default_pool": "defualt"')),
    finds: ['fail config'],
    code: 2,
    says: /did you mean "default"/,
  },
  {
    name: 'a backup that is two days old',
    words: ['backup'],
    plant() {
      const file = join(world.backups, 'sternpost-20261119T031700Z-10.tar')
      writeFileSync(file, '')
      const then = Date.now() / 1_000 - 48 * 3_600
      utimesSync(file, then, then)
      return () => rmSync(file)
    },
    finds: [`fail backup ${world.backups}`],
    code: 2,
    says: /the newest is 2 days old/,
  },
  {
    name: 'a master key that others can read',
    words: ['secrets'],
    plant() {
      chmodSync(join(folder, 'master.key'), 0o644)
      return () => chmodSync(join(folder, 'master.key'), 0o600)
    },
    finds: [`fail secrets ${join(folder, 'master.key')}`],
    code: 2,
    says: /chmod o=/,
  },
  {
    name: 'a port that another mail server holds',
    words: ['listeners'],
    async plant() {
      const other = createServer((socket) => socket.end(`220 ${HOSTNAME} ESMTP Exim 4.96\r\n`)).listen(2525, FIRST)
      await once(other, 'listening')
      const mend = inFile('sternpost.yaml', (text) =>
        text.replace(
          '"tls": "starttls"',
          `"tls": "starttls" }, { "address": "${FIRST}", "port": 2525, "tls": "starttls"`,
        ),
      )()
      return () => {
        other.close()
        mend()
      }
    },
    finds: [`fail listeners listen.submission ${FIRST}:2525`],
    code: 2,
    says: /another server answers: 220 mail\.sternpost\.test ESMTP Exim/,
  },
  {
    name: 'a clock that is ahead',
    words: ['clock'],
    async plant() {
      const time = createSocket('udp4')
      time.on('message', (_request, peer) => {
        const answer = Buffer.alloc(48)
        // Version 4, server, stratum 2.
        answer.writeUInt16BE(0x2402)
        answer.writeUInt32BE(Math.floor(Date.now() / 1_000) - 90 + 2_208_988_800, 40)
        time.send(answer, peer.port, peer.address)
      })
      time.bind(123, '127.0.0.1')
      await once(time, 'listening')
      return () => time.close()
    },
    finds: ['fail clock'],
    code: 2,
    says: /\d\d\.\d s ahead of the time service/,
  },
]

for (const { name, words, plant, finds, code, says } of FAULTS) {
  t.test(`${name} is found`, async (t) => {
    const mend = await plant()
    try {
      const seen = await doctor(...words)
      t.same(problems(seen).toSorted(), finds.toSorted())
      t.equal(seen.code, code)
      const troubled = seen.report.checks.filter(({ result }) => result === 'warn' || result === 'fail')
      if (says !== undefined) t.match(troubled.map((each) => `${each.seen}. ${each.fix}`).join('\n'), says)
      t.ok(
        troubled.every(({ why, fix }) => why !== '' && fix !== null),
        'each says why and what to do',
      )
    } finally {
      await mend()
    }
  })
}

t.test('each record of a domain that went wrong is found', async (t) => {
  const names = new Map<string, string>()
  for (const domain of DOMAINS) {
    for (const { purpose, name } of (await appliance.parts.domains.find(domain))?.records ?? []) {
      names.set(`${domain} ${purpose}`, name)
    }
  }
  const nameOf = (domain: string, purpose: string): string => names.get(`${domain} ${purpose}`) ?? ''
  zone.set(nameOf('dkim.test', 'dkim'), { TXT: ['v=DKIM1; k=rsa; p=MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAK'] })
  zone.set(nameOf('spf.test', 'spf'), { TXT: ['v=spf1 -all'], MX: [`10 ${HOSTNAME}`] })
  zone.set(nameOf('bounce.test', 'return_path'), { TXT: ['v=spf1 -all'], MX: ['10 mx.other.test'] })
  zone.set(nameOf('dmarc.test', 'dmarc'), undefined)
  clock.leap(11_000)
  const seen = await doctor('domain')
  const found = problems(seen)
  for (const wanted of [
    'fail domain-dkim dkim.test',
    'fail domain-spf spf.test',
    'fail domain-return-path bounce.test',
    'warn domain-dmarc dmarc.test',
  ]) {
    t.ok(found.includes(wanted), `${wanted} is among ${found.join(', ')}`)
  }
  const ofBounces = seen.report.checks.filter(
    ({ check, subject }) => ['domain-spf', 'domain-return-path'].includes(check) && subject === 'bounce.test',
  )
  t.equal(ofBounces.length, 2)
  t.ok(
    ofBounces.every(({ fix }) => fix?.includes(` CNAME rp.${HOSTNAME}.;`)),
    'one alias mends both',
  )
  t.equal(seen.code, 2)
  const one = await doctor('domain', '--domain', 'dmarc.test')
  t.same(problems(one), ['warn domain-dmarc dmarc.test'])
  t.equal((await doctor('domain', '--domain', 'dmarc.test', '--strict')).code, 2, 'strict')
})

t.test('the texts for others', async (t) => {
  const ticket = await sternpost(['doctor', '--ticket', 'port25', '--config', folder])
  t.equal(ticket.code, 0)
  t.match(ticket.stdout, /Please open outbound TCP port 25[\s\S]+203\.0\.113\.11 {2}PTR {2}mta2\.sternpost\.test/)
  const loops = await sternpost(['doctor', 'feedback', '--config', folder])
  t.match(loops.stdout, /fbl@mail\.sternpost\.test[\s\S]+spf\.test[\s\S]+senders\.yahooinc\.com/)
  const unknown = await sternpost(['doctor', 'ptrr', '--config', folder])
  t.match(unknown, { code: 64, stderr: /no check "ptrr"/ })
  const typo = await doctor('domain', '--domain', 'nobody.test')
  t.same([problems(typo), typo.code], [['fail domain nobody.test'], 2], 'a domain that is not there is no clean one')
})

t.test('a host that closes port 25 degrades the server, and does not make it unavailable', async (t) => {
  world.mailHosts.close()
  const seen = await doctor()
  const wanted = world.ips.map(({ address }) => `fail port25 ${address}`)
  t.same(
    problems(seen).filter((problem) => problem.includes('port25')),
    wanted,
  )
  const status = await sternpost(['status', '--json', '--config', folder])
  t.equal(status.code, 1)
  t.match(JSON.parse(status.stdout), { health: { status: 'degraded', smtp_out: 'port 25 is blocked' } })
  t.match(await metrics(), /sternpost_health_check_status\{check="port25"\} 2/)
})

t.test('without a server it says what it can see', async (t) => {
  await appliance.parts.stop()
  const seen = await until('the doors are closed', async () => {
    const looked = await doctor('ptr', 'queue', 'listeners')
    return looked.report.server === 'absent' && looked
  })
  t.equal(seen.code, 2)
  const results = Map.groupBy(seen.report.checks, ({ check }) => check)
  t.same(
    results.get('ptr')?.map(({ result }) => result),
    world.ips.map(() => 'ok'),
  )
  t.same(
    results.get('queue')?.map(({ result }) => result),
    ['skip'],
  )
  t.ok(results.get('listeners')?.every(({ result }) => result === 'fail'))
})
