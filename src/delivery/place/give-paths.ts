/**
 * Gives messages that can go their paths: an egress IP for each, and warmup allowance where the IP needs some. What is
 * refused there goes to the next IP that may take it (spill), at most three times. What no IP takes now goes back to
 * the queue with the reason and the time. Never rejects. egress/README.md "Which IP" and "Provider shares".
 */
import { MINUTE, SECOND } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import type { Egress } from '../../egress/egress.ts'
import type { Grant } from '../../store/records/queue-records.ts'
import type { ClaimedMessage } from '../../store/records/claim-records.ts'
import type { MailHost } from '../protocol/try-result.ts'
import { hostsFor } from '../route/host-families.ts'
import type { ChoosePath, ChosenPath } from './choose-path.ts'
import type { PlacedRow } from './placed-row.ts'
import { createGiveBack, type GiveBackOptions, type ResolvedMessage } from './resolve-messages.ts'

/** Resolves when each of them has a path or goes back. */
type GivePaths = (ready: readonly ResolvedMessage[]) => Promise<void>

export interface GivePathsOptions extends GiveBackOptions {
  egress: Pick<Egress, 'reserve'>
  choosePath: ChoosePath
  /** Leaves out TLS to hosts where it failed before (delivery/README.md "TLS"). */
  tlsMemory: { apply(ip: string, hosts: MailHost[]): MailHost[] }
  onPlaced: (rows: PlacedRow[]) => void
}

type Chosen<Kind extends ChosenPath['kind']> = Extract<ChosenPath, { kind: Kind }>

interface Needing {
  each: ResolvedMessage
  chosen: Chosen<'path'>
}

interface Reserved {
  granted: { item: Needing; grant: Grant }[]
  /** For these nothing was left; the egress knows that now. */
  refused: Needing[]
}

/** How often a message is given another IP because the one before had no allowance left. */
const MOST_CHOICES = 3
/**
 * A row that cannot go is looked at again after at most so long, whatever is known of the end: an operator or a reply
 * may end it sooner. Until it is really over its queue key is closed, and this costs nothing.
 */
const LONGEST_HOLD = 15 * MINUTE
/** When nobody knows the end. */
const UNKNOWN_HOLD = 5 * MINUTE

export function createGivePaths(options: GivePathsOptions): GivePaths {
  const { clock, logger, egress, recorder } = options
  const giveBack = createGiveBack(options)

  /** What the store cannot answer for goes back; what was placed before goes on. */
  async function reserve(needing: readonly Needing[]): Promise<Reserved> {
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

  function wait(message: ClaimedMessage, { until, waitingFor, text }: Chosen<'wait'>): void {
    logger.debug({ message_id: message.id, waiting_for: waitingFor, until, reason: text }, 'message waits')
    const now = clock.now()
    const nextAt = Math.ceil(Math.min(until ?? now + UNKNOWN_HOLD, now + LONGEST_HOLD))
    recorder.giveBack(message, { nextAt, waitingFor })
  }

  function toRow({ message, route, returnPath }: ResolvedMessage, { facts, ip, isProbe }: Chosen<'path'>): PlacedRow {
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
      route: ip === null ? route : { ...route, hosts: options.tlsMemory.apply(ip.address, hostsFor(ip, route)) },
    }
  }

  return async (ready) => {
    const placed: PlacedRow[] = []
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
      open = refused.map(({ each }) => ({
        each,
        chosen: choice < MOST_CHOICES ? choose(each) : noAllowance(clock.now()),
      }))
    }
    options.onPlaced(placed)
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
