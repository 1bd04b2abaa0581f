/**
 * What Sternpost asks to be published, put into a real DNS server, makes strangers pass what Sternpost really sent:
 * opendkim, dkimpy and mailauth its signatures, pyspf and mailauth its SPF for every pool IP and for no other.
 */
import { generateKeyPairSync } from 'node:crypto'
import t, { type Test } from 'tap'
import {
  APPLIANCE_RECORDS,
  startDomainWorld,
  toPublish,
  type DomainBody,
  type DomainWorld,
} from '../support/domain-world.ts'
import {
  JUDGE_PROGRAMS,
  judgeSpf,
  judgeWithDkimpy,
  judgeWithMailauth,
  judgeWithOpendkim,
  type SignatureVerdict,
} from '../support/judges.ts'
import type { KeptMail } from '../support/keeping-sink.ts'
import { missingPrograms } from '../support/programs.ts'
import type { DnsRecordLine } from '../support/unbound.ts'
import { until } from '../support/until.ts'

const skip = missingPrograms(JUDGE_PROGRAMS)

const OWN_IPS = ['127.0.0.11', '127.0.0.12']
const OVERFLOW_IP = '127.0.0.13'
const POOLS = {
  version: 1,
  default_pool: 'default',
  pools: {
    default: {
      overflow_pool: 'spill',
      ips: OWN_IPS.map((address, index) => ({ address, hostname: `mta${index}.sternpost.test`, warmed: true })),
    },
    spill: { ips: [{ address: OVERFLOW_IP, hostname: 'mta3.sternpost.test', warmed: true }] },
  },
}
/** The domain of the operator, which signs all mail below the domain that sends it, once: opendkim looks at three. */
const PLATFORM = 'ours.test'
const BOTH = ['rsa-sha256', 'ed25519-sha256']
const MOST_RSA_BITS = 4_096
const MOST_STRING_BYTES = 255
const MINUTE = 60_000

/** The signature must hold for all of them. */
const MESSAGES: Record<string, unknown>[] = [
  { subject: 'Plain', text: 'Hello.\n' },
  { subject: 'Grüße aus Köln '.repeat(12), html: '<p>ä</p>\r\n.\r\n..two\r\n', text: '.\nfrom\n' },
  { subject: '', text: `${'x'.repeat(3_000)}\n \t\n trailing \n\n\n` },
  {
    subject: 'With a file',
    html: '<a href="https://acme.test/?a=1&b=2">here</a>',
    text: 'here',
    reply_to: 'help@acme.test',
    attachments: [{ name: 'Rechnung ä.txt', content: Buffer.from('Danke.\n').toString('base64') }],
  },
]

t.test('signatures and SPF of every kind of domain pass at every judge', { skip }, async (t) => {
  const world = await startDomainWorld(t, {
    pools: POOLS,
    settings: { domains: { dkim: { ed25519: true, platform_domain: PLATFORM } } },
    applianceRecords: APPLIANCE_RECORDS.map((record) =>
      record.name === 'spf.mail.sternpost.test' ? { ...record, value: spfOf([...OWN_IPS, OVERFLOW_IP]) } : record,
    ),
  })
  const ours = await world.addVerified(PLATFORM)
  t.same(algorithmsAsked(ours), ['k=rsa', 'k=ed25519'], 'both keys are asked for')

  const pem = newPrivateKey()
  const brought = await world.addVerified('brought.test', { dkim_private_key: pem, dkim_selector: 'mine' })
  t.match(brought.records[0], { name: 'mine._domainkey.brought.test' })
  for (const { value, value_chunks: chunks = [] } of brought.records.filter(({ type }) => type === 'TXT')) {
    t.equal(chunks.join(''), value, 'the chunks are the value')
    t.ok(chunks.every((chunk) => chunk.length <= MOST_STRING_BYTES))
  }
  t.ok((brought.records[0]?.value_chunks ?? []).length >= 3, 'a long key is cut')

  await addWithOwnReturnPath(t, world)

  const mails = [
    ...(await sendAll(world, PLATFORM)),
    ...(await sendAll(world, 'brought.test')),
    ...(await sendAll(world, 'own-mx.test')),
  ]
  t.equal(new Set(mails.map(({ source }) => source)).size, OWN_IPS.length, 'they left from both IPs')
  await t.test('every signature holds', (t) => allPass(t, mails, world.unbound.port))

  await t.test('one changed byte breaks them all', async (t) => {
    const changed = mails.slice(0, 3).map(({ bytes }) => {
      const bodyStart = bytes.indexOf('\r\n\r\n') + 4
      return Buffer.concat([bytes.subarray(0, bodyStart), Buffer.from('!'), bytes.subarray(bodyStart)])
    })
    for (const verdicts of await verdictsOf(changed, world.unbound.port)) {
      t.ok(
        verdicts.every(({ isGood }) => !isGood),
        JSON.stringify(verdicts),
      )
    }
  })

  await t.test('SPF of the envelope sender is pass for each IP of the pools and fail for another', async (t) => {
    const senders = new Map(mails.map(({ from }) => [from.slice(from.indexOf('@')), from]))
    t.same([...senders.keys()].sort(), ['@bounces.brought.test', '@bounces.ours.test', '@bounces.own-mx.test'])
    for (const sender of senders.values()) {
      const results = await judgeSpf([...OWN_IPS, OVERFLOW_IP, '127.0.0.14'], sender, world.unbound.port)
      t.same(
        results,
        [
          ...[...OWN_IPS, OVERFLOW_IP].map((ip) => ({ ip, pyspf: 'pass', mailauth: 'pass' })),
          { ip: '127.0.0.14', pyspf: 'fail', mailauth: 'fail' },
        ],
        sender,
      )
    }
  })

  await t.test('an IP of the overflow pool that SPF leaves out is found', async (t) => {
    world.setZone('', APPLIANCE_RECORDS)
    await world.publish()
    const seen = await world.verify('ours.test')
    const record = seen.records.find(({ purpose }) => purpose === 'spf')
    t.match(record, { status: 'failed', error: /127\.0\.0\.13/ })
    t.same(record?.evaluated, [...OWN_IPS.map((ip) => ({ ip, result: 'pass' })), { ip: OVERFLOW_IP, result: 'fail' }])
  })
})

t.test('an administrator publishes the printed zone file, and checks until it is verified', { skip }, async (t) => {
  const world = await startDomainWorld(t, { settings: { domains: { dkim: { ed25519: true } } } })
  const { baseUrl, apiKey, clock, command } = world.appliance
  const added = await command('domain', 'add', 'zone.test')
  t.match(added, { code: 0, stdout: /_domainkey/ }, added.stderr)
  const early = await command('domain', 'check', 'zone.test')
  t.match(early, { code: 1, stdout: /bounces\.zone\.test/ }, 'not yet')
  const printed = await command('domain', 'dns', 'zone.test', '--format', 'zone')
  const headers = { Authorization: `Bearer ${apiKey}` }
  const answer = await fetch(`${baseUrl}/v1/domains/zone.test/zonefile`, { headers })
  t.match(answer.headers.get('content-type') ?? '', /^text\/plain/)
  t.equal(printed.stdout.trim(), (await answer.text()).trim(), 'the same from command and API')
  await world.unbound.publishText(printed.stdout, APPLIANCE_RECORDS)
  clock.leap(MINUTE)
  const checked = await command('domain', 'check', 'zone.test', '--wait', '10s', '--json')
  t.match(checked, { code: 0 }, checked.stderr)
  t.match(JSON.parse(checked.stdout), { domain: 'zone.test', status: 'verified' })
})

function spfOf(ips: readonly string[]): string {
  return `v=spf1 ${ips.map((ip) => `ip4:${ip}`).join(' ')} -all`
}

function newPrivateKey(): string {
  return generateKeyPairSync('rsa', {
    modulusLength: MOST_RSA_BITS,
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  }).privateKey
}

function algorithmsAsked({ records }: DomainBody): (string | undefined)[] {
  // The tag of the key's kind.
  return records.filter(({ purpose }) => purpose === 'dkim').map(({ value }) => /k=\w+/.exec(value)?.[0])
}

/** MX and TXT of its own in place of the CNAME. */
async function addWithOwnReturnPath(t: Test, world: DomainWorld): Promise<void> {
  const name = 'bounces.own-mx.test'
  const added = await world.add('own-mx.test')
  const own: DnsRecordLine[] = [
    { name, type: 'MX', value: '10 mail.sternpost.test' },
    { name, type: 'TXT', value: 'v=spf1 include:spf.mail.sternpost.test -all' },
  ]
  world.setZone('own-mx.test', [...toPublish(added).filter((record) => record.name !== name), ...own])
  await world.publish()
  t.match(await world.verify('own-mx.test'), { status: 'verified' })
}

/** Sends each message once; the mails as they arrived, each signed by whom it should be. */
async function sendAll(world: DomainWorld, domain: string): Promise<KeptMail[]> {
  const before = world.sink.mails.length
  const wanted = BOTH.map((algorithm) => `${algorithm} ${domain}`)
  if (domain !== PLATFORM) wanted.push(`rsa-sha256 ${PLATFORM}`)
  for (const [index, message] of MESSAGES.entries()) {
    await world.appliance.api.send({ ...message, to: `Ada <ada${index}@dest.test>`, from: `Käufer <a@${domain}>` })
  }
  return until('the mails arrive', () => {
    const mails = world.sink.mails.slice(before)
    if (mails.length < MESSAGES.length) return undefined
    for (const { bytes } of mails) {
      const fields = bytes.toString('latin1').matchAll(/^DKIM-Signature:[^]*?a=([\w-]+);[^]*?d=([\w.-]+);/gm)
      const found = [...fields].map(([, name, signer]) => `${name} ${signer}`)
      if (found.join() !== wanted.join()) throw new Error(`signed with ${found.join()}`)
    }
    return mails
  })
}

async function verdictsOf(mails: readonly Buffer[], dnsPort: number): Promise<SignatureVerdict[][]> {
  const all = await Promise.all([
    judgeWithOpendkim(mails, dnsPort),
    judgeWithDkimpy(mails, dnsPort),
    Promise.all(mails.map((mail) => judgeWithMailauth(mail, dnsPort))),
  ])
  return all.flat()
}

async function allPass(t: Test, mails: readonly KeptMail[], dnsPort: number): Promise<void> {
  const verdicts = await verdictsOf(
    mails.map(({ bytes }) => bytes),
    dnsPort,
  )
  t.equal(verdicts.length, 3 * mails.length, 'three judges')
  for (const [index, signatures] of verdicts.entries()) {
    const count = (mails[index % mails.length]?.bytes.toString('latin1').match(/^DKIM-Signature:/gm) ?? []).length
    t.equal(signatures.length, count, 'each signature is judged')
    t.ok(
      signatures.every(({ isGood }) => isGood),
      JSON.stringify(signatures),
    )
    t.equal(signatures[0]?.algorithm, 'rsa-sha256', 'RSA is topmost')
  }
}
