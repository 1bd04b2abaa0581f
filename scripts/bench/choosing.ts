/**
 * Choosing an IP and a slot: CPU of this thread for a message that goes through the fair order, the gates of its paths,
 * the choice among 64 IPs, and the waiting list of its path; 1,000 destinations, 100,000 ready messages. The parts are
 * those of the dispatcher, put together as it does; claims, DNS and threads are left out.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../src/base/clock.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createLiveConfiguration } from '../../src/config/live-configuration.ts'
import { createCaptureRoute, createPathFacts, type PathFacts } from '../../src/delivery/place/path-facts.ts'
import { createChoosePath, type ChosenMessage } from '../../src/delivery/place/choose-path.ts'
import { createFairOrder } from '../../src/delivery/claim/fair-order.ts'
import { createPaths } from '../../src/delivery/place/paths.ts'
import type { PathRow } from '../../src/delivery/place/take-rows.ts'
import { createReadyWindow } from '../../src/delivery/place/ready-window.ts'
import type { HostsRoute } from '../../src/delivery/route/route-message.ts'
import { identifyProvider } from '../../src/egress/shaping/mailbox-provider.ts'
import { createEgress } from '../../src/egress/egress.ts'
import type { Gate, Lane, Shaping } from '../../src/egress/shaping/shaping.ts'
import { createShaping } from '../../src/egress/shaping/create-shaping.ts'
import type { QueueKey } from '../../src/store/records/queue-records.ts'
import { poolOf, warmed, withPools } from '../../test/egress/egress-parts.ts'
import { locationIn, openTestStore } from '../../test/store/sqlite-support.ts'
import { median, threeDigits } from './figures.ts'

export interface ChoosingFigures {
  ips: number
  destinations: number
  ready: number
  /** CPU for a message, the median of some rounds. */
  microseconds: number
}

const IPS = 64
const DESTINATIONS = 1_000
const READY = 100_000
const ROUNDS = 5
/** As the dispatcher asks for rows. */
const ROUND = 500
const DOMAIN = 'acme.test'
const MANY = 1_000_000
const UNLIMITED: Gate = {
  kind: 'open',
  connections: MANY,
  messagesPerConnection: MANY,
  carefulHosts: [],
  mostUnderWay: MANY,
  mostOfLane: MANY,
}

export async function measureChoosing(): Promise<ChoosingFigures> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-bench-choosing-'))
  const { store } = await openTestStore(locationIn(folder))
  const configuration = createLiveConfiguration(
    withPools({ default: poolOf(Array.from({ length: IPS }, (_, index) => warmed(`127.0.2.${index + 1}`))) }),
  )
  const logger = createLogger({ level: 'silent' })
  const { egress } = createEgress({
    configuration,
    store,
    clock: systemClock,
    canBind: async () => true,
    logger,
    lookups: null,
  })
  const shaping = createShaping({
    clock: systemClock,
    logger,
    store,
    settings: configuration.current,
    signals: { onBlock() {}, onIpSuspension() {}, onIpUnreachable() {}, onLaneSuspension() {} },
  })
  await egress.start()
  await shaping.start()
  try {
    const run = createRun(configuration.current, egress, shaping)
    // The first time warms up.
    run(READY)
    const rounds = Array.from({ length: ROUNDS }, () => {
      const before = process.cpuUsage()
      run(READY)
      const { user, system } = process.cpuUsage(before)
      return (user + system) / READY
    })
    return { ips: IPS, destinations: DESTINATIONS, ready: READY, microseconds: threeDigits(median(rounds)) }
  } finally {
    await shaping.stop()
    await egress.stop()
    await store.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

type Current = ReturnType<typeof createLiveConfiguration>['current']
type Egress = ReturnType<typeof createEgress>['egress']

function createRun(current: Current, egress: Egress, shaping: Shaping): (messages: number) => void {
  const gateOf = ({ shaped }: PathFacts, lane: Lane | null): Gate =>
    shaped === null ? UNLIMITED : shaping.gate(shaped, lane)
  const paths = createPaths<PathRow>({
    clock: systemClock,
    threads: 1,
    gateOf: (facts) => gateOf(facts, null),
    takeTokens: ({ shaped }, count) =>
      shaped === null ? { granted: count, nextAt: null } : shaping.take(shaped, count),
  })
  const pathFacts = createPathFacts(current)
  const choosePath = createChoosePath({
    clock: systemClock,
    configuration: current,
    egress,
    gateOf,
    pathFacts,
    paths,
    window: createReadyWindow(() => MANY),
    capture: createCaptureRoute({ address: '127.0.0.1', port: 9 }, current),
  })
  const routes = Array.from({ length: DESTINATIONS }, (_, index) => routeOf(index, current))
  const order = createFairOrder()
  // Acceptance makes them.
  const ids = Array.from({ length: READY }, () => newIdentifier('msg', Date.now()))
  return (messages) => {
    routes.forEach(({ provider }) => order.set(keyOf(provider.route), Math.ceil(messages / DESTINATIONS)))
    const byRoute = new Map(routes.map((route) => [route.provider.route, route]))
    let key = 0
    for (let chosen = 0; chosen < messages;) {
      const asks = order.round({
        room: ROUND,
        mostPerLane: MANY,
        mostAlone: MANY,
        heldOf: () => 0,
        roomOf: () => MANY,
        capacityOf: () => ({ slots: IPS, room: MANY }),
      })
      if (asks.length === 0) throw new Error('the fair order had nothing to ask for')
      for (const ask of asks) {
        const route = byRoute.get(ask.key.route)
        if (route === undefined) throw new Error('a route that is not there')
        for (let count = 0; count < ask.limit; count += 1) place(route, (key += 1))
        chosen += ask.limit
      }
      const { ready, returned } = paths.take()
      for (const { rows } of ready) for (const row of rows) paths.settle(row)
      if (returned.length > 0) throw new Error(`${returned.length} rows came back`)
    }
  }

  function place(route: HostsRoute, key: number): void {
    const chosen = choosePath(messageOf(ids[key % READY] ?? '', route), route)
    if (chosen.kind === 'wait') return
    paths.add({ claim: key, facts: chosen.facts, isUrgent: false, expiresAt: Number.MAX_SAFE_INTEGER, isProbe: false })
  }
}

function routeOf(index: number, current: Current): HostsRoute {
  const name = `mx.d${index}.test`
  return {
    kind: 'hosts',
    siteKey: name,
    provider: identifyProvider(current().providers, `d${index}.test`, [name]),
    hosts: [{ name, addresses: ['127.0.0.1'], tls: { kind: 'opportunistic', policy: { type: 'none', id: '' } } }],
  }
}

function keyOf(route: string): QueueKey {
  return { pool: 'default', route, domain: DOMAIN, stream: 'bulk', isRetry: false }
}

function messageOf(id: string, { provider, hosts }: HostsRoute): ChosenMessage {
  return {
    id,
    pool: 'default',
    route: provider.route,
    domain: DOMAIN,
    stream: 'bulk',
    recipientDomain: (hosts[0]?.name ?? '').slice('mx.'.length),
    attempts: 0,
    lastIp: null,
    keepIpUntil: null,
    avoidIps: [],
    isCaptured: false,
  }
}
