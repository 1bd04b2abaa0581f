/**
 * Claimed messages to their paths: hosts and provider of the recipient domain, then an egress IP for each message, then
 * warmup allowance where the IP needs some. What is captured goes to the capture server instead.
 *
 * | a message                              | goes                                                                |
 * | -------------------------------------- | ------------------------------------------------------------------- |
 * | whose domain has another route than it | back to the queue, under that route                                 |
 * | whose IP gets no allowance after all   | to the next IP that may take it (spill), at most three times        |
 * | that no IP takes now                   | back to the queue, with the reason and the time                     |
 * | whose sending domain is gone           | back to the queue for five minutes, with a warning                  |
 *
 * Nothing here is an attempt. One slow name does not hold up the others. src/README.md "The road of one email" (steps 5
 * to 7), 5, 6.5.
 */
import { LRUCache } from 'lru-cache'
import { MINUTE, SECOND } from '../../base/clock.ts'
import type { Clock } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import type { Configuration } from '../../config/load-configuration.ts'
import type { EgressIp } from '../../egress/ips/egress-ip.ts'
import type { Egress } from '../../egress/egress.ts'
import type { RouteAssignment } from '../../store/records/queue-records.ts'
import type { ClaimedMessage, GiveBack } from '../../store/records/records.ts'
import type { Store } from '../../store/store.ts'
import type { CaptureRoute } from './capture-route.ts'
import type { ChoosePath, ChosenPath } from './choose-path.ts'
import { hostsFor } from '../route/host-families.ts'
import type { KnownRoutes } from '../route/known-routes.ts'
import type { PlacedRow } from './placed-row.ts'
import { reserveGrants } from './reserve-grants.ts'
import type { Reserved } from './reserve-grants.ts'
import type { HostsRoute, NoHosts, Route } from '../route/route-message.ts'
import type { MailHost } from '../protocol/try-result.ts'

export interface MessagePlacer {
  place(messages: readonly ClaimedMessage[]): void
  /** Claimed rows of a pool and route that have no path yet. */
  placing: { of(group: { pool: string; route: string }): number; firstAttempts(): number }
  /** Rows that are being placed. */
  held(): Iterable<ClaimedMessage>
  /** Resolves when every message has been placed, judged or given back. */
  settled(): Promise<void>
}

export interface MessagePlacerOptions {
  store: Pick<Store, 'findReturnPath'>
  clock: Clock
  logger: Logger
  egress: Pick<Egress, 'reserve'>
  configuration: () => Configuration
  routes: Pick<KnownRoutes, 'fresh' | 'find'>
  capture: CaptureRoute
  choosePath: ChoosePath
  /** Leaves out TLS to hosts where it failed before (delivery/README.md "TLS"). */
  tlsMemory: { apply(ip: string, hosts: MailHost[]): MailHost[] }
  recorder: { giveBack(message: ClaimedMessage, how: GiveBack): void }
  onPlaced: (rows: PlacedRow[]) => void
  /** Rows are not being placed any more: `placing` has changed. */
  onDone: () => void
  onDnsAnswer: (answer: NoHosts, messages: ClaimedMessage[]) => void
  /** A domain has another route than its rows had. */
  onRouteChanged: (assignment: RouteAssignment) => void
}

/** When the sending domain is gone, or something failed: look again after this. */
const LOOK_AGAIN_AFTER = 5 * MINUTE
const MOST_RETURN_PATHS = 5_000
/** A domain that was removed and added anew may have another one. */
const RETURN_PATH_LIFETIME = SECOND
/** How often a message is given another IP because the one before had no allowance left. */
const MOST_CHOICES = 3

/** Of a message that can go. */
interface Ready {
  message: ClaimedMessage
  route: HostsRoute
  returnPath: string
}

interface Needing {
  each: Ready
  chosen: Extract<ChosenPath, { kind: 'path' }>
}

/** What had to be asked about the messages of one recipient domain. */
interface Answers {
  route: Route
  /** By sending domain; undefined: it is gone. */
  returnPaths: ReadonlyMap<string, string | undefined>
}

export function createMessagePlacer(options: MessagePlacerOptions): MessagePlacer {
  const { store, clock, logger, egress, configuration, recorder, routes, capture } = options
  const returnPaths = new LRUCache<string, string>({ max: MOST_RETURN_PATHS, ttl: RETURN_PATH_LIFETIME })
  const underWay = new Map<Promise<void>, readonly ClaimedMessage[]>()
  const waiting = new Map<string, number>()
  let firstAttempts = 0

  function count(messages: readonly ClaimedMessage[], by: 1 | -1): void {
    for (const { pool, route, attempts } of messages) {
      const group = `${pool} ${route}`
      const left = (waiting.get(group) ?? 0) + by
      if (left > 0) waiting.set(group, left)
      else waiting.delete(group)
      if (attempts === 0) firstAttempts += by
    }
  }

  const giveBack = (messages: readonly ClaimedMessage[], reason: string): void => {
    logger.warn({ reason, messages: messages.length, message_id: messages[0]?.id }, 'messages can not be sent now')
    for (const message of messages) recorder.giveBack(message, { nextAt: clock.now() + LOOK_AGAIN_AFTER })
  }

  async function returnPathOf(domain: string): Promise<string | undefined> {
    const known = returnPaths.get(domain)
    if (known !== undefined) return known
    const found = await store.findReturnPath(domain)
    if (found === null) return undefined
    returnPaths.set(domain, found)
    return found
  }

  /** Gives back those whose domain has another route by now; returns the others. */
  function withoutMoved(
    messages: readonly ClaimedMessage[],
    { provider: { route, isp } }: HostsRoute,
  ): ClaimedMessage[] {
    const isMoved = (message: ClaimedMessage): boolean => !message.isCaptured && message.route !== route
    const moved = messages.filter(isMoved)
    for (const message of moved) recorder.giveBack(message, { nextAt: clock.now(), route })
    const [first] = moved
    if (first !== undefined) options.onRouteChanged({ domain: first.recipientDomain, route, isp })
    return messages.filter((message) => !isMoved(message))
  }

  function withReturnPaths(
    messages: readonly ClaimedMessage[],
    route: HostsRoute,
    known: ReadonlyMap<string, string | undefined>,
  ): Ready[] {
    return messages.flatMap((message) => {
      // Mail of test keys may come from a domain that this server has no record of: reports come to the server itself.
      const own = message.isCaptured ? configuration().server.domains.targets.return_path : undefined
      const returnPath = known.get(message.domain) ?? own
      if (returnPath !== undefined) return [{ message, route, returnPath }]
      giveBack([message], `the sending domain ${message.domain} is not there`)
      return []
    })
  }

  /** What the store can not answer for goes back; what was placed before goes on. */
  async function reserve(needing: readonly Needing[]): Promise<Reserved<Needing>> {
    try {
      return await reserveGrants(needing, egress)
    } catch (thrown) {
      giveBack(
        needing.map(({ each }) => each.message),
        errorText(thrown),
      )
      return { granted: [], refused: [] }
    }
  }

  async function placeReady(ready: readonly Ready[]): Promise<void> {
    const placed: PlacedRow[] = []
    const chosenBefore = new Map<string, number>()
    const choose = ({ message, route }: Ready): ChosenPath => {
      const chosen = options.choosePath(message, route, (pathKey) => chosenBefore.get(pathKey) ?? 0)
      if (chosen.kind === 'path') chosenBefore.set(chosen.facts.key, (chosenBefore.get(chosen.facts.key) ?? 0) + 1)
      return chosen
    }
    let open = ready.map((each) => ({ each, chosen: choose(each) }))
    for (let choice = 1; open.length > 0; choice++) {
      const needing: Needing[] = []
      for (const { each, chosen } of open) {
        if (chosen.kind === 'wait') wait(each.message, chosen)
        else if (chosen.needsGrant) needing.push({ each, chosen })
        else placed.push(toRow(each, chosen))
      }
      if (needing.length === 0) break
      const { granted, refused } = await reserve(needing)
      for (const {
        item: { each, chosen },
        grant,
      } of granted)
        placed.push({ ...toRow(each, chosen), grant })
      open = refused.map(({ each }) => ({
        each,
        chosen: choice < MOST_CHOICES ? choose(each) : noAllowance(clock.now()),
      }))
    }
    options.onPlaced(placed)
  }

  function wait(message: ClaimedMessage, { until, waitingFor, text }: Extract<ChosenPath, { kind: 'wait' }>): void {
    logger.debug({ message_id: message.id, waiting_for: waitingFor, until, reason: text }, 'message waits')
    recorder.giveBack(message, { nextAt: lookAgainAt(clock.now(), until), waitingFor })
  }

  function toRow({ message, route, returnPath }: Ready, chosen: Extract<ChosenPath, { kind: 'path' }>): PlacedRow {
    const { facts, ip, isProbe } = chosen
    return {
      claim: message.claim,
      facts,
      isUrgent: message.stream === 'transactional',
      expiresAt: message.expiresAt,
      isProbe,
      message,
      lane: { domain: message.domain, stream: message.stream },
      ip,
      returnPath,
      grant: null,
      route: ip === null ? route : reachable(ip, route),
    }
  }

  function reachable(ip: EgressIp, route: HostsRoute): HostsRoute {
    return { ...route, hosts: options.tlsMemory.apply(ip.address, hostsFor(ip, route)) }
  }

  async function askFor(messages: readonly ClaimedMessage[]): Promise<Answers | undefined> {
    const [first] = messages
    if (first === undefined) return undefined
    const { recipientDomain, isCaptured } = first
    try {
      const route = isCaptured
        ? capture.routeOf(recipientDomain)
        : (routes.fresh(recipientDomain) ?? (await routes.find(recipientDomain)))
      const known = new Map<string, string | undefined>()
      for (const { domain } of route.kind === 'hosts' ? messages : []) {
        if (!known.has(domain)) known.set(domain, returnPaths.get(domain) ?? (await returnPathOf(domain)))
      }
      return { route, returnPaths: known }
    } catch (thrown) {
      giveBack(messages, errorText(thrown))
      return undefined
    }
  }

  /** All of one recipient domain, and either all captured or none. */
  async function resolve(messages: readonly ClaimedMessage[]): Promise<Ready[]> {
    const answers = await askFor(messages)
    if (answers === undefined) return []
    const { route } = answers
    if (route.kind === 'hosts') return withReturnPaths(withoutMoved(messages, route), route, answers.returnPaths)
    options.onDnsAnswer(route, [...messages])
    return []
  }

  function run(messages: readonly ClaimedMessage[], groups: readonly ClaimedMessage[][]): void {
    count(messages, 1)
    const placing = Promise.all(groups.map(resolve))
      .then((ready) => placeReady(ready.flat()))
      // Nothing that is known leads here. What went back before stays as it is, and nothing is placed yet.
      .catch((thrown: unknown) => giveBack(messages, errorText(thrown)))
      .finally(() => {
        underWay.delete(placing)
        count(messages, -1)
        options.onDone()
      })
    underWay.set(placing, messages)
  }

  return {
    place(messages) {
      if (messages.length === 0) return
      const byDomain = Map.groupBy(messages, ({ recipientDomain, isCaptured }) => `${isCaptured} ${recipientDomain}`)
      const groups = [...byDomain.values()]
      const isKnown = ([first]: ClaimedMessage[]): boolean =>
        first !== undefined && (first.isCaptured || routes.fresh(first.recipientDomain) !== undefined)
      // Those whose hosts are known share one reservation; each of the others comes when its answer does.
      const known = groups.filter(isKnown)
      if (known.length > 0) run(known.flat(), known)
      for (const group of groups) if (!known.includes(group)) run(group, [group])
    },
    placing: { of: ({ pool, route }) => waiting.get(`${pool} ${route}`) ?? 0, firstAttempts: () => firstAttempts },
    *held() {
      for (const messages of underWay.values()) yield* messages
    },
    async settled() {
      while (underWay.size > 0) await Promise.all(underWay.keys())
    },
  }
}

/** Others may have some: what was refused is known by then. */
function noAllowance(now: number): Extract<ChosenPath, { kind: 'wait' }> {
  return { kind: 'wait', until: now + SECOND, waitingFor: 'warmup_hour', text: 'No IP of the pool had allowance left.' }
}

/**
 * A row that cannot go is looked at again after at most so long, whatever is known of the end: an operator or a reply
 * may end it sooner. Until it is really over its queue key is closed, and this costs nothing.
 */
const LONGEST_HOLD = 15 * MINUTE
/** When nobody knows the end. */
const UNKNOWN_HOLD = 5 * MINUTE

/** When a row that cannot go now is due again. */
function lookAgainAt(now: number, until: number | null): number {
  return Math.ceil(Math.min(until ?? now + UNKNOWN_HOLD, now + LONGEST_HOLD))
}
