/**
 * Claimed messages to their paths: hosts and provider of the recipient domain (`resolve-messages.ts`), then an egress
 * IP for each message and its allowance. What is captured goes to the capture server instead. One slow name does not
 * hold up the others. Every message gets a path, is judged by what the DNS said, or goes back to the queue, without an
 * attempt. src/README.md "The road of one email" (step 5).
 */
import { MINUTE, SECOND } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import type { Egress } from '../../egress/egress.ts'
import type { EgressIp } from '../../egress/ips/egress-ip.ts'
import type { Lane } from '../../egress/shaping/shaping.ts'
import type { ClaimedMessage } from '../../store/records/claim-records.ts'
import type { Grant, WaitingFor } from '../../store/records/queue-records.ts'
import type { MailHost } from '../protocol/try-result.ts'
import type { HostsRoute } from '../route/route-message.ts'
import { hostsFor, type ChoosePath, type ChosenPath } from './choose-path.ts'
import { createCounts } from './ready-window.ts'
import { createResolveMessages, type ResolvedMessage, type ResolveMessagesOptions } from './resolve-messages.ts'
import type { PathFactsMaker } from './path-facts.ts'
import type { PathRow } from './take-rows.ts'
import { createWaitingLines } from './waiting-lines.ts'

/** How often a message is given another IP because the one before had no allowance left. */
const MOST_CHOICES = 3
/**
 * A row that cannot go is looked at again after at most so long, whatever is known of the end: an operator or a reply
 * may end it sooner. Until it is really over its queue key is closed, and this costs nothing; what one IP alone may
 * send stands in line for it.
 */
const LONGEST_HOLD = 15 * MINUTE
const UNKNOWN_HOLD = 5 * MINUTE
/** While there is none its key is closed, and costs nothing; an operator may raise it at any time. */
const ALLOWANCE_HOLD = MINUTE
const OF_ALLOWANCE: ReadonlySet<WaitingFor> = new Set(['warmup_day', 'warmup_hour', 'provider_share'])

/** A claimed message with the path it was given: from which IP, to which hosts, under which limits. */
export interface PlacedRow extends PathRow {
  message: ClaimedMessage
  lane: Lane
  /** null: it goes to the capture server, from loopback. */
  ip: EgressIp | null
  /** Its hosts are those that the IP can reach. */
  route: HostsRoute
  returnPath: string
  /** The warmup allowance it was given; null: it needs none. */
  grant: Grant | null
}

export type MessagePlacer = ReturnType<typeof createMessagePlacer>

export interface MessagePlacerOptions extends ResolveMessagesOptions {
  egress: Pick<Egress, 'reserve' | 'noteRefund' | 'ips'>
  pathFacts: Pick<PathFactsMaker, 'generation'>
  choosePath: ChoosePath
  /** Leaves out TLS to hosts where it failed before (delivery/README.md "TLS"). */
  tlsMemory: { apply(ip: string, hosts: MailHost[]): MailHost[] }
  onPlaced: (rows: PlacedRow[]) => void
  /** Rows are not being placed any more: `placing` has changed. */
  onDone: () => void
}

export function createMessagePlacer(options: MessagePlacerOptions) {
  const { resolve, giveBack } = createResolveMessages(options)
  const givePaths = createGivePaths(options, giveBack)
  const underWay = new Map<Promise<void>, readonly ClaimedMessage[]>()
  const waiting = createCounts()
  const waitingByRoute = createCounts()
  let firstAttempts = 0

  function count(messages: readonly ClaimedMessage[], by: 1 | -1): void {
    for (const { pool, route, attempts } of messages) {
      waiting.add(`${pool} ${route}`, by)
      waitingByRoute.add(route, by)
      if (attempts === 0) firstAttempts += by
    }
  }

  function run(messages: readonly ClaimedMessage[], groups: readonly ClaimedMessage[][]): void {
    count(messages, 1)
    const placing = Promise.all(groups.map(resolve))
      .then((ready) => givePaths(ready.flat()))
      // No known fault leads here. Nothing is placed yet, and what went back before stays as it is.
      .catch((thrown: unknown) => giveBack(messages, errorText(thrown)))
      .finally(() => {
        underWay.delete(placing)
        count(messages, -1)
        options.onDone()
      })
    underWay.set(placing, messages)
  }

  return {
    place(messages: readonly ClaimedMessage[]): void {
      if (messages.length === 0) return
      const byDomain = Map.groupBy(messages, ({ recipientDomain, isCaptured }) => `${isCaptured} ${recipientDomain}`)
      const groups = [...byDomain.values()]
      const isKnown = ([first]: ClaimedMessage[]): boolean =>
        first !== undefined && (first.isCaptured || options.routes.fresh(first.recipientDomain) !== undefined)
      // Those whose hosts are known share one reservation; each of the others comes when its answer does.
      const known = groups.filter(isKnown)
      if (known.length > 0) run(known.flat(), known)
      for (const group of groups) if (!known.includes(group)) run(group, [group])
    },
    /** Claimed rows of a pool and route that have no path yet. */
    placing: {
      of: ({ pool, route }: { pool: string; route: string }) => waiting.of(`${pool} ${route}`),
      byRoute: waitingByRoute.all,
      firstAttempts: () => firstAttempts,
    },
    *held(): Iterable<ClaimedMessage> {
      for (const messages of underWay.values()) yield* messages
    },
    /** Resolves when every message has been placed, judged or given back. */
    async settled(): Promise<void> {
      while (underWay.size > 0) await Promise.all(underWay.keys())
    },
  }
}

type Chosen<Kind extends ChosenPath['kind']> = Extract<ChosenPath, { kind: Kind }>

type Needing = { each: ResolvedMessage; chosen: Chosen<'path'> }

interface Reserved {
  granted: { item: Needing; grant: Grant }[]
  /** For these nothing was left; the egress knows that now. */
  refused: Needing[]
}

/**
 * Gives messages that can go their paths: an egress IP for each, and warmup allowance where the IP needs some. What is
 * refused there goes to the next IP that may take it (spill), at most three times. What no IP takes now goes back to
 * the queue with the reason and the time. Never rejects. egress/README.md "Which IP" and "Provider shares".
 */
function createGivePaths(
  options: MessagePlacerOptions,
  giveBack: ReturnType<typeof createResolveMessages>['giveBack'],
) {
  const { clock, logger, egress, pathFacts, recorder } = options
  const inLine = createWaitingLines()

  /** What the store cannot answer for goes back; what was placed before goes on. */
  async function reserve(needing: readonly Needing[]): Promise<Reserved> {
    try {
      return await reserveGrants(needing, egress)
    } catch (thrown) {
      const messages = needing.map(({ each }) => each.message)
      giveBack(messages, errorText(thrown))
      return { granted: [], refused: [] }
    }
  }

  function wait(message: ClaimedMessage, chosen: Chosen<'wait'>): void {
    const { until: end, waitingFor, text, keptTo, hasNoIp = false } = chosen
    const now = clock.now()
    const isInLine = keptTo !== undefined && end !== null && waitingFor === 'rate'
    const until = isInLine ? inLine(`${keptTo} ${message.route} ${message.stream}`, end, now) : end
    logger.debug({ message_id: message.id, waiting_for: waitingFor, until, reason: text }, 'message waits')
    const longest = OF_ALLOWANCE.has(waitingFor) ? ALLOWANCE_HOLD : LONGEST_HOLD
    const nextAt = hasNoIp ? now : Math.ceil(Math.min(until ?? now + UNKNOWN_HOLD, now + longest))
    recorder.giveBack(message, { nextAt, waitingFor })
  }

  function toRow({ message, route, returnPath }: ResolvedMessage, { facts, ip, isProbe }: Chosen<'path'>): PlacedRow {
    const { claim, expiresAt, domain, stream } = message
    const lane = { domain, stream }
    const isUrgent = stream === 'transactional'
    const reached = ip === null ? route : { ...route, hosts: options.tlsMemory.apply(ip.address, hostsFor(ip, route)) }
    return { claim, facts, isUrgent, expiresAt, isProbe, message, lane, ip, returnPath, grant: null, route: reached }
  }

  /** IPs have changed since they were chosen: rows whose IP is not as it was go back. */
  function stillPlaced(rows: readonly PlacedRow[]): PlacedRow[] {
    const current = new Map(egress.ips().map((ip) => [ip.address, ip]))
    const isAsBefore = ({ ip }: PlacedRow): boolean => {
      const now = ip === null ? null : current.get(ip.address)
      const isOfPool = now?.pool === ip?.pool && now?.sends === ip?.sends
      return isOfPool && now?.source === ip?.source && now?.hostname === ip?.hostname
    }
    const { same = [], changed = [] } = Object.groupBy(rows, (row) => (isAsBefore(row) ? 'same' : 'changed'))
    for (const { message, grant } of changed) {
      if (grant !== null) egress.noteRefund(grant.ip, grant.isp)
      recorder.giveBack(message, { nextAt: clock.now(), ...(grant === null ? {} : { refund: grant }) })
    }
    return same
  }

  return async (ready: readonly ResolvedMessage[]): Promise<void> => {
    const placed: PlacedRow[] = []
    const generation = pathFacts.generation()
    const chosenBefore = new Map<string, number>()
    const choose = ({ message, route }: ResolvedMessage): ChosenPath => {
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
      for (const { item, grant } of granted) placed.push({ ...toRow(item.each, item.chosen), grant })
      const again = (each: ResolvedMessage) => (choice < MOST_CHOICES ? choose(each) : noAllowance(clock.now()))
      open = refused.map(({ each }) => ({ each, chosen: again(each) }))
    }
    options.onPlaced(generation === pathFacts.generation() ? placed : stillPlaced(placed))
  }
}

/** One question for all of them, added up by IP and mailbox provider. Those that come first get what is granted. */
async function reserveGrants(items: readonly Needing[], egress: Pick<Egress, 'reserve'>): Promise<Reserved> {
  const groups = Map.groupBy(items, ({ chosen: { ip, facts } }) => `${ip?.address} ${facts.isp}`)
  const asked = [...groups.values()].flatMap((group) => {
    const [first] = group
    const ip = first?.chosen.ip
    if (first === undefined || ip === null || ip === undefined) return []
    return [{ group, ask: { ip: ip.address, isp: first.chosen.facts.isp, count: group.length } }]
  })
  const reservations = await egress.reserve(asked.map(({ ask }) => ask))
  const reserved: Reserved = { granted: [], refused: [] }
  asked.forEach(({ group }, index) => {
    const reservation = reservations[index]
    const count = reservation?.granted ?? 0
    reserved.refused.push(...group.slice(count))
    if (reservation === undefined) return
    const { ip, isp, day, at } = reservation
    for (const item of group.slice(0, count)) reserved.granted.push({ item, grant: { ip, isp, day, at } })
  })
  return reserved
}

/** Other IPs may have some: the egress knows by then what was refused. */
function noAllowance(now: number): Chosen<'wait'> {
  return { kind: 'wait', until: now + SECOND, waitingFor: 'warmup_hour', text: 'No IP of the pool had allowance left.' }
}
