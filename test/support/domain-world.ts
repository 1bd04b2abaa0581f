/**
 * The world that sending domains live in: unbound with zones that the test changes, the appliance on a clock that the
 * test moves, and a receiver that keeps what arrives.
 */
import { startKeepingSink, type KeepingSink, type KeepingSinkOptions } from './keeping-sink.ts'
import { startRunningAppliance, type RunningAppliance } from './running-appliance.ts'
import type { ServeOptions } from './serve-process.ts'
import { TWO_IPS } from './two-ips.ts'
import { startUnbound, type DnsRecordLine, type DnsTrouble, type Unbound } from './unbound.ts'
import { until } from './until.ts'

export interface RecordView {
  purpose: string
  required: boolean
  via?: string
  role?: string
  type: DnsRecordLine['type']
  name: string
  value: string
  value_chunks?: string[]
  status: string
  found: string[]
  error: string | null
  hint: string | null
  evaluated?: { ip: string; result: string }[]
}

/** The record of a domain as the API shows it. */
export interface DomainBody {
  domain: string
  status: string
  verified: boolean
  can_send: boolean
  created_at: number
  verified_at: number | null
  last_checked_at: number | null
  next_check_at: number
  return_path: string
  records: RecordView[]
}

export interface DomainWorld {
  unbound: Unbound
  sink: KeepingSink
  appliance: RunningAppliance
  /** Puts records into the DNS under a name of the test's own; they stay until that name gets others. */
  setZone(name: string, records: readonly DnsRecordLine[]): void
  /** Names that fail from the next `publish` on. */
  setTrouble(trouble: DnsTrouble): void
  /** Makes the DNS serve what was set. */
  publish(): Promise<void>
  add(domain: string, fields?: Record<string, unknown>): Promise<DomainBody>
  find(domain: string): Promise<DomainBody>
  /** `POST …/verify`, far enough from the last one that it really looks. */
  verify(domain: string): Promise<DomainBody>
  /** Moves the clock to the domain's next check and lets the schedule's job do it. */
  nextCheck(domain: string): Promise<DomainBody>
  /** Adds it, publishes all it asks for, and has it verified. */
  addVerified(domain: string, fields?: Record<string, unknown>): Promise<DomainBody>
}

const SECOND = 1_000
/** More than http/README.md "Domains" keeps the answer of a verify call. */
const BETWEEN_VERIFY_CALLS = 11 * SECOND

export const APPLIANCE_RECORDS: readonly DnsRecordLine[] = [
  { name: 'mail.sternpost.test', type: 'A', value: '127.0.0.1' },
  { name: 'track.mail.sternpost.test', type: 'A', value: '127.0.0.1' },
  { name: 'spf.mail.sternpost.test', type: 'TXT', value: 'v=spf1 ip4:127.0.0.11 ip4:127.0.0.12 -all' },
  { name: 'rp.mail.sternpost.test', type: 'TXT', value: 'v=spf1 include:spf.mail.sternpost.test -all' },
  { name: 'rp.mail.sternpost.test', type: 'MX', value: '10 mail.sternpost.test' },
  { name: 'dest.test', type: 'MX', value: '10 mx.dest.test' },
  { name: 'mx.dest.test', type: 'A', value: '127.0.0.1' },
]

export interface WorldOptions extends Partial<Pick<ServeOptions, 'pools' | 'settings'>> {
  applianceRecords?: readonly DnsRecordLine[]
  /** `IP:port` that the appliance asks in place of unbound. */
  dnsServer?: string
  /** Where unbound listens; left out: at a free port. */
  dnsPort?: number
  onMail?: KeepingSinkOptions['onMail']
}

/** The part of a test that cleans up. */
interface Closable {
  teardown(clean: () => unknown): void
}

export async function startDomainWorld(t: Closable, options: WorldOptions = {}): Promise<DomainWorld> {
  const { applianceRecords = APPLIANCE_RECORDS, pools = TWO_IPS, settings = {}, onMail } = options
  const zones = new Map<string, readonly DnsRecordLine[]>([['', applianceRecords]])
  let trouble: DnsTrouble = {}
  const unbound = await startUnbound(applianceRecords, options.dnsPort)
  t.teardown(() => unbound.stop())
  const sink = await startKeepingSink(onMail === undefined ? {} : { onMail })
  t.teardown(() => sink.close())
  const appliance = await startRunningAppliance({
    dnsServer: options.dnsServer ?? unbound.server,
    deliveryPort: sink.port,
    pools,
    settings,
  })
  t.teardown(() => appliance.stop())
  const { api, clock, parts } = appliance

  const world: DomainWorld = {
    unbound,
    sink,
    appliance,
    setZone: (name, records) => void zones.set(name, records),
    setTrouble: (value) => void (trouble = value),
    publish: () => unbound.publish([...zones.values()].flat(), trouble),
    async add(domain, fields = {}) {
      return bodyOf(await api.post('/domains', { domain, ...fields }), 201)
    },
    async find(domain) {
      return bodyOf(await api.get(`/domains/${domain}`), 200)
    },
    async verify(domain) {
      clock.leap(BETWEEN_VERIFY_CALLS)
      return bodyOf(await api.post(`/domains/${domain}/verify`, {}), 200)
    },
    async nextCheck(domain) {
      const { next_check_at: next } = await world.find(domain)
      clock.leap(Math.max(0, (next + 1) * SECOND - clock.now()))
      await parts.domains.checkDue()
      // The schedule's own minute may have come first.
      return until(`${domain} was checked`, async () => {
        const found = await world.find(domain)
        return (found.last_checked_at ?? 0) >= next && found
      })
    },
    async addVerified(domain, fields) {
      const added = await world.add(domain, fields)
      world.setZone(domain, toPublish(added))
      await world.publish()
      const verified = await world.verify(domain)
      if (!verified.verified) throw new Error(`${domain} is not verified: ${JSON.stringify(verified.records)}`)
      return verified
    },
  }
  return world
}

function bodyOf({ status, body }: { status: number; body: Record<string, unknown> }, wanted: number): DomainBody {
  if (status !== wanted) throw new Error(`answered ${status}: ${JSON.stringify(body)}`)
  return body['data'] as DomainBody
}

/** What its owner publishes: a record that another one brings along is not published itself. */
export function toPublish(domain: DomainBody): DnsRecordLine[] {
  return domain.records
    .filter((record) => record.via === undefined)
    .map(({ name, type, value }) => ({ name, type, value }))
}

export function recordOf(domain: DomainBody, purpose: string): RecordView {
  const record = domain.records.find((entry) => entry.purpose === purpose)
  if (record === undefined) throw new Error(`${domain.domain} has no ${purpose} record`)
  return record
}
