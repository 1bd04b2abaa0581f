/**
 * Takes warmup allowance for placed messages: one question for all of them, added up by IP and mailbox provider.
 * Those that come first get what is granted. Rejects when the store does. egress/README.md "Provider shares".
 */
import type { EgressIp } from '../../egress/ips/egress-ip.ts'
import type { Egress } from '../../egress/egress.ts'
import type { Grant } from '../../store/records/queue-records.ts'
import type { PathFacts } from './path-facts.ts'

interface Needing {
  chosen: { ip: EgressIp | null; facts: Pick<PathFacts, 'isp'> }
}

export interface Reserved<Item> {
  granted: { item: Item; grant: Grant }[]
  /** For these nothing was left; the egress knows that now. */
  refused: Item[]
}

export async function reserveGrants<Item extends Needing>(
  items: readonly Item[],
  egress: Pick<Egress, 'reserve'>,
): Promise<Reserved<Item>> {
  const groups = Map.groupBy(items, ({ chosen: { ip, facts } }) => `${ip?.address} ${facts.isp}`)
  const asked = [...groups.values()].flatMap((group) => {
    const [first] = group
    const ip = first?.chosen.ip
    if (first === undefined || ip === null || ip === undefined) return []
    return [{ group, ask: { ip: ip.address, isp: first.chosen.facts.isp, count: group.length } }]
  })
  const reservations = await egress.reserve(asked.map(({ ask }) => ask))
  const reserved: Reserved<Item> = { granted: [], refused: [] }
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
