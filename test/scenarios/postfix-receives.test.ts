/**
 * The main job among strangers: two pool IPs, unbound for DNS, Debian's Postfix as the receiving MX, dkimpy as the
 * judge of the signature.
 */
import { execFileSync } from 'node:child_process'
import t from 'tap'
import { addVerifiedDomain, apiClient } from '../support/api-client.ts'
import { startPostfix } from '../support/postfix.ts'
import { missingPrograms, PYTHON } from '../support/programs.ts'
import { freePort, startServe } from '../support/serve-process.ts'
import { TWO_IPS } from '../support/two-ips.ts'
import { startUnbound, type DnsRecordLine } from '../support/unbound.ts'
import { until } from '../support/until.ts'

const MX_ADDRESS = '127.0.0.21'
const HELO_NAMES: Record<string, string> = { '127.0.0.11': 'mta1.sternpost.test', '127.0.0.12': 'mta2.sternpost.test' }
const MESSAGES = 20

const APPLIANCE_NAMES: DnsRecordLine[] = [
  { name: 'spf.mail.sternpost.test', type: 'TXT', value: 'v=spf1 ip4:127.0.0.11 ip4:127.0.0.12 -all' },
  { name: 'rp.mail.sternpost.test', type: 'TXT', value: 'v=spf1 include:spf.mail.sternpost.test -all' },
  { name: 'rp.mail.sternpost.test', type: 'MX', value: '10 mail.sternpost.test' },
  { name: 'dest.test', type: 'MX', value: '10 mx.dest.test' },
  { name: 'mx.dest.test', type: 'A', value: MX_ADDRESS },
]

// dkimpy asks its DNS through the function it is given: here unbound's port, by dnspython.
const DKIMPY = `
import sys, dkim, dns.resolver
resolver = dns.resolver.Resolver(configure=False)
resolver.nameservers, resolver.port = ['127.0.0.1'], int(sys.argv[1])
def txt(name, timeout=5):
    return b''.join(resolver.resolve(name.decode(), 'TXT')[0].strings)
print('pass' if dkim.verify(sys.stdin.buffer.read(), dnsfunc=txt) else 'fail')
`

const skip =
  missingPrograms({
    postfix: ['postfix'],
    unbound: ['unbound'],
    'python3:dkim': ['python3-dkim'],
    'python3:dns.resolver': ['python3-dnspython'],
  }) || (process.getuid?.() === 0 ? false : 'needs root, as Postfix does')

t.setTimeout(600_000)

t.test('mail reaches a Maildir from the right IP with the right name and a good signature', { skip }, async (t) => {
  const port = await freePort(MX_ADDRESS)
  const postfix = startPostfix({ address: MX_ADDRESS, port, domain: 'dest.test', mailboxes: ['ada'] })
  t.teardown(() => postfix.stop())
  const unbound = await startUnbound(APPLIANCE_NAMES)
  t.teardown(() => unbound.stop())
  const server = await startServe({ dnsServer: unbound.server, deliveryPort: port, pools: TWO_IPS })
  t.teardown(() => server.remove())

  const api = apiClient(server.baseUrl, await server.createKey('admin'))
  const added = await api.post('/domains', { domain: 'acme.test' })
  t.equal(added.status, 201)
  const { records } = added.body['data'] as { records: (DnsRecordLine & { via?: string })[] }
  const early = await api.post('/email/send', { to: 'ada@dest.test', from: 'a@acme.test', subject: 'x', text: 'x' })
  t.match(early, { status: 403, body: { error: { code: 'domain_not_verified' } } })
  await unbound.publish([...APPLIANCE_NAMES, ...records.filter((record) => record.via === undefined)])
  await addVerifiedDomain(api, 'acme.test', () => {})

  const ids: string[] = []
  for (let index = 0; index < MESSAGES; index += 1) {
    ids.push(
      await api.send({
        to: 'Ada Lovelace <ada@dest.test>',
        from: 'Acme Bestellungen <orders@acme.test>',
        subject: `Grüße zu Bestellung {{number}}`,
        html: '<p>Hallo {{name}},</p><p>.\r\n..\r\nalles unterwegs.</p>',
        variables: { number: index, name: 'Ada & Co' },
        attachments: [{ name: 'Rechnung.txt', content: Buffer.from('Danke.\n').toString('base64') }],
      }),
    )
  }
  const mails = await until(
    'all mails are in the Maildir',
    () => {
      const arrived = postfix.mails('ada')
      return arrived.length >= MESSAGES && arrived
    },
    180_000,
  ).catch((error: Error) => t.fail(`${error.message}\n${postfix.log()}`))
  if (mails === undefined || mails === null || typeof mails === 'boolean') return

  const usedIps = new Set<string>()
  for (const mail of mails) {
    const text = mail.toString('utf8')
    // Postfix's trace field: the name given in EHLO, then the address the connection came from.
    const [, name, ip = ''] = /^Received: from (\S+) \(unknown \[([\d.]+)\]\)/m.exec(text) ?? []
    t.equal(name, HELO_NAMES[ip], `${ip} says its own name`)
    usedIps.add(ip)
    t.match(text, /^Return-Path: <b-[a-z2-7]{48}@bounces\.acme\.test>$/m)
    const verdict = execFileSync(PYTHON, ['-c', DKIMPY, String(unbound.port)], { input: mail, encoding: 'utf8' })
    t.equal(verdict.trim(), 'pass', 'dkimpy accepts the signature')
  }
  t.same([...usedIps].sort(), Object.keys(HELO_NAMES), 'both pool IPs were used')

  const { body } = await api.get(`/email/${ids[0]}`)
  const data = body['data'] as { state: string; ip: string; attempts: { ip: string; mx: string; result: string }[] }
  t.match(data, { state: 'delivered', attempts: [{ mx: 'mx.dest.test', result: 'delivered' }] })
  t.ok(usedIps.has(data.ip))

  const unknown = await api.send({ to: 'nobody@dest.test', from: 'orders@acme.test', subject: 'x', text: 'x' })
  const bounced = await until('the unknown recipient bounced', async () => {
    const answer = await api.get(`/email/${unknown}`)
    const found = answer.body['data'] as { state: string; bounce: unknown }
    return found.state === 'bounced' && found
  })
  t.match(bounced, { bounce: { type: 'hard', code: '5.1.1', description: /User unknown/ } })
})
