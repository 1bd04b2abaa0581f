/**
 * Somebody between us and the recipient's host who wants plain text: where MTA-STS, DANE or the provider demands TLS he
 * never gets any, and the transcript says why; where nobody does, he gets it once, and it is remembered.
 */
import t, { type Test } from 'tap'
import { HOUR } from '../../src/base/clock.ts'
import { missingForMailDomains, startMailDomains, type MailDomains } from '../support/mail-domains.ts'
import { startRunningAppliance, type RunningAppliance } from '../support/running-appliance.ts'
import { scriptedMx, type ScriptedMx } from '../support/scripted-mx.ts'
import { freePort } from '../support/serve-process.ts'
import { startSmtpProxy, type ProxyRules, type SmtpProxy } from '../support/smtp-proxy.ts'
import { SENDING_DOMAIN } from '../support/two-ips.ts'
import type { SignedZone } from '../support/signed-zones.ts'
import type { IssuedCertificate } from '../support/test-authority.ts'
import { until } from '../support/until.ts'

const DEMANDS = ['mta-sts', 'dane', 'provider', 'nobody'] as const
type Demand = (typeof DEMANDS)[number]

/** What he does; he who shows another certificate ends the encryption himself. */
const ATTACKS: Record<string, ProxyRules> = {
  strip: { fromServer: (line) => line.replace(/STARTTLS$/, 'XXXXXXXA') },
  refuse: {
    fromClient(line, connection) {
      if (line !== 'STARTTLS') return line
      connection.tellClient('454 4.7.0 TLS not available due to temporary reason')
      return null
    },
  },
  reset: { onHandshake: (connection) => connection.reset() },
  inject: { fromServer: (line) => (line.startsWith('220 2') ? `${line}\r\n250 2.0.0 injected` : line) },
}
const OTHER_NAME = 'other name'
const EXPIRED = 'expired'
const NAMES = [...Object.keys(ATTACKS), OTHER_NAME, EXPIRED]

/** What the transcript says of it. */
const REFUSED_WITH: Record<string, RegExp> = {
  strip: /^\* starttls failed: the host does not offer STARTTLS$/m,
  refuse: /^< 454 4\.7\.0 TLS not available due to temporary reason\n\* starttls failed: 454 4\.7\.0 TLS/m,
  reset: /^\* starttls failed: .*ECONNRESET/m,
  inject: /^\* starttls failed: plain text behind the answer to STARTTLS$/m,
}
const NOT_NAMED = /^\* starttls failed: no TLSA record names the certificate$/m
const WRONG_CERTIFICATE: Record<string, Partial<Record<Demand, RegExp>>> = {
  [OTHER_NAME]: {
    'mta-sts': /^\* starttls failed: the certificate is not for mx\.mta-sts-other-name\.open\.test$/m,
    dane: NOT_NAMED,
  },
  [EXPIRED]: { 'mta-sts': /^\* starttls failed: the certificate has expired$/m, dane: NOT_NAMED },
}
/** Where any certificate is taken. */
const NOT_VERIFIED =
  /^\* encrypted: .*; the certificate is not verified: the certificate (is not for mx\.|has expired)/m

interface Cell {
  attack: string
  demand: Demand
  domain: string
  address: string
  isRefused: boolean
  says: RegExp
}

const CELLS: Cell[] = NAMES.flatMap((attack, row) =>
  DEMANDS.map((demand, column): Cell => {
    const says = REFUSED_WITH[attack] ?? WRONG_CERTIFICATE[attack]?.[demand]
    return {
      attack,
      demand,
      domain: `${demand}-${attack.replace(' ', '-')}.${demand === 'dane' ? 'signed' : 'open'}.test`,
      address: `127.0.26.${1 + row * DEMANDS.length + column}`,
      // Whom nobody's policy speaks of may have any certificate; and who puts text in is not rewarded.
      isRefused: says !== undefined && (demand !== 'nobody' || attack === 'inject'),
      says: says ?? NOT_VERIFIED,
    }
  }),
)

/** Names that somebody has changed on the way: another host for a domain with a policy, or a record that was signed. */
const LURED = { name: 'lured.open.test', address: '127.0.26.99', hasPolicy: true, mx: 'mx.evil.open.test' }
const FORGED: SignedZone = {
  name: 'forged.test',
  state: 'signed',
  records: ['@ 300 IN MX 10 mx', 'mx 300 IN A 127.0.26.98'],
  spoil: (text) => text.replace('127.0.26.98', LURED.address),
}

const POOL = {
  version: 1,
  default_pool: 'default',
  pools: { default: { ips: [{ address: '127.0.0.11', hostname: 'mta1.sternpost.test', warmed: true }] } },
}
/** Of a host that limits nothing; another message is another connection. */
const PROVIDERS = {
  default: { messages_per_connection: 1 },
  providers: {
    strict: {
      tls: 'required',
      domains: CELLS.filter(({ demand }) => demand === 'provider').map(({ domain }) => domain),
    },
  },
}

t.setTimeout(600_000)

t.test('somebody in the middle', { skip: missingForMailDomains() }, async (t) => {
  const port = await freePort('127.0.26.1')
  const domains = await startMailDomains({
    port,
    policyAddress: '127.0.25.2',
    domains: [
      LURED,
      ...CELLS.map(({ domain, address, demand }) => ({ name: domain, address, hasPolicy: demand === 'mta-sts' })),
    ],
    zones: [FORGED],
  })
  t.teardown(() => domains.close())
  const world = await startAttacks(t, domains, port)
  const appliance = await startRunningAppliance({
    dnsServer: domains.dnsServer,
    deliveryPort: port,
    pools: POOL,
    settings: { ...domains.settings, delivery: { threads: 1 } },
    files: { 'providers.d/10-test.yaml': PROVIDERS },
  })
  t.teardown(() => appliance.stop())
  await domains.prepareSender(appliance.api)
  const refused = CELLS.filter(({ isRefused }) => isRefused)
  const passed = CELLS.filter(({ isRefused }) => !isRefused)

  const ids = await send(appliance, CELLS)
  await t.test('no plain text where TLS is demanded, and why', async (t) => {
    for (const cell of refused) {
      const id = ids.get(cell) ?? ''
      const view = await stateOf(appliance, id, 'deferred')
      t.match(view, { attempts: [{ result: 'path_failed', tls: null }] }, cell.domain)
      t.match(await transcript(appliance, id), cell.says, `${cell.domain}: the reason`)
    }
  })
  await t.test('one plain connection where nobody demands it, remembered', async (t) => {
    for (const cell of passed) {
      const id = ids.get(cell) ?? ''
      await stateOf(appliance, id, 'delivered')
      // Nothing has failed where STARTTLS is not offered.
      if (cell.attack !== 'strip') t.match(await transcript(appliance, id), cell.says, `${cell.domain}: the reason`)
    }
    const second = await send(appliance, passed)
    for (const cell of passed) {
      const view = await stateOf(appliance, second.get(cell) ?? '', 'delivered')
      const isEncrypted = cell.attack in WRONG_CERTIFICATE
      t.match(view, { attempts: [{ result: 'delivered', tls: isEncrypted ? 'TLSv1.3' : null }] }, cell.domain)
      t.same(world.tlsTries(cell), TRIES[cell.attack], `${cell.domain}: connections that ask for STARTTLS, in order`)
    }
  })
  await t.test('a host that the domain did not name', async (t) => {
    const evil = await scriptedMx({ address: LURED.address, port })
    t.teardown(() => evil.close())
    const reasons = { [LURED.name]: /MTA-STS policy .* names none/, [FORGED.name]: /DNS cannot be believed/ }
    for (const [name, reply] of Object.entries(reasons)) {
      const id = await sendTo(appliance, name)
      t.match(await stateOf(appliance, id, 'deferred'), { attempts: [{ result: 'path_failed', reply }] }, name)
    }
    t.same(evil.connections, [], 'nobody connects to it')
  })
  await t.test('also not with time', async (t) => {
    appliance.clock.leap(2 * HOUR)
    for (const cell of refused) {
      const view = await until(`${cell.domain} was tried again`, async () => {
        const view = await lookUp(appliance, ids.get(cell) ?? '')
        return view.attempts.length > 1 && view.state === 'deferred' && view
      })
      t.ok(
        view.attempts.every(({ result }) => result === 'path_failed'),
        cell.domain,
      )
    }
    appliance.clock.leap(72 * HOUR)
    for (const cell of refused) {
      const view = await stateOf(appliance, ids.get(cell) ?? '', 'expired')
      const description = /^not delivered within 72 h; last answer: ./
      t.match(view.bounce, { type: 'soft', code: '4.4.7', description }, cell.domain)
      t.notOk(world.sawMail(cell), `${cell.domain}: no mail was begun`)
    }
  })
  for (const cell of CELLS) {
    const outcome = cell.isRefused ? 'no mail, expired after 72 h' : THROUGH[cell.attack]
    t.comment(`| ${cell.attack.padEnd(10)} | ${cell.demand.padEnd(8)} | ${outcome}`)
  }
})

const THROUGH: Record<string, string> = {
  strip: 'plain text',
  refuse: 'plain text after one try, then at once',
  reset: 'plain text after one try, then at once',
  [OTHER_NAME]: 'encrypted, not verified',
  [EXPIRED]: 'encrypted, not verified',
}
/** For two messages, one after the other. */
const TRIES: Record<string, boolean[]> = {
  strip: [false, false],
  refuse: [true, false, false],
  reset: [true, false, false],
  [OTHER_NAME]: [true, true],
  [EXPIRED]: [true, true],
}

interface Attacked {
  /** MAIL was said in plain text, or to somebody else. */
  sawMail(cell: Cell): boolean
  /** Of each connection, whether it asked for STARTTLS. */
  tlsTries(cell: Cell): boolean[]
}

async function startAttacks(t: Test, domains: MailDomains, port: number): Promise<Attacked> {
  const { key, chain: cert } = domains.certificate
  const target = await scriptedMx({ address: '127.0.27.1', port, tls: { key, cert } })
  t.teardown(() => target.close())
  const certificates: Record<string, IssuedCertificate> = {
    [OTHER_NAME]: domains.authority.issue(['mx.elsewhere.test']),
    [EXPIRED]: domains.authority.issue(
      CELLS.map(({ domain }) => `mx.${domain}`),
      { isExpired: true },
    ),
  }
  const proxies = new Map<Cell, SmtpProxy>()
  const impostors = new Map<Cell, ScriptedMx>()
  for (const cell of CELLS) {
    const shown = certificates[cell.attack]
    const place = { address: cell.address, port }
    if (shown !== undefined) {
      const impostor = await scriptedMx({ ...place, tls: { key: shown.key, cert: shown.chain } })
      impostors.set(cell, impostor)
      t.teardown(() => impostor.close())
    } else {
      const proxy = await startSmtpProxy(place, target, ATTACKS[cell.attack] ?? {})
      proxies.set(cell, proxy)
      t.teardown(() => proxy.close())
    }
  }
  const saidTo = (cell: Cell): string[][] => [
    ...(proxies.get(cell)?.connections.map(({ said }) => said) ?? []),
    ...(impostors.get(cell)?.connections.map(({ commands }) => commands) ?? []),
  ]
  return {
    sawMail: (cell) =>
      saidTo(cell)
        .flat()
        .some((line) => line.startsWith('MAIL')),
    tlsTries: (cell) => saidTo(cell).map((lines) => lines.includes('STARTTLS')),
  }
}

async function send(appliance: RunningAppliance, cells: readonly Cell[]): Promise<Map<Cell, string>> {
  const ids = new Map<Cell, string>()
  for (const cell of cells) ids.set(cell, await sendTo(appliance, cell.domain))
  return ids
}

function sendTo({ api }: RunningAppliance, domain: string): Promise<string> {
  return api.send({ to: `ada@${domain}`, from: `orders@${SENDING_DOMAIN}`, subject: 'Order', text: 'Thank you' })
}

interface View {
  state: string
  attempts: { result: string; tls: string | null }[]
  bounce: { type: string; code: string; description: string } | null
}

async function lookUp({ api }: RunningAppliance, id: string): Promise<View> {
  return (await api.get(`/email/${id}`)).body['data'] as unknown as View
}

function stateOf(appliance: RunningAppliance, id: string, state: string): Promise<View> {
  return until(`${id} is ${state}`, async () => {
    const view = await lookUp(appliance, id)
    return view.state === state && view
  })
}

async function transcript({ api }: RunningAppliance, id: string): Promise<string> {
  const entries = (await api.get(`/email/${id}/transcript`)).body['data'] as { dialogue: string | null }[]
  return entries.at(-1)?.dialogue ?? ''
}
