/**
 * Counts again at the receiver what a warming IP sent, by source address and time: nothing here knows the tables of the
 * appliance. A message counts once for each IP that tried it: what comes again from the same IP is a retry.
 */
import { DAY, HOUR } from '../../src/base/clock.ts'
import type { SeenRecipient } from './wire-log.ts'

export interface SentDay {
  /** Number of the UTC day. */
  day: number
  source: string
  /** First tries. */
  sent: number
  sentTo: ReadonlyMap<string, number>
  /** Most first tries within any 60 minutes that end in this day. */
  mostInHour: number
}

export function recount(seen: readonly SeenRecipient[]): SentDay[] {
  return [...Map.groupBy(firstTries(seen), ({ source }) => source)].flatMap(([source, tries]) => {
    const most = mostInHourByDay(tries)
    return [...Map.groupBy(tries, ({ at }) => dayOf(at))].map(([day, ofDay]) => ({
      day,
      source,
      sent: ofDay.length,
      sentTo: new Map([...Map.groupBy(ofDay, (one) => one.recipientDomain)].map(([to, some]) => [to, some.length])),
      mostInHour: most.get(day) ?? 0,
    }))
  })
}

export function dayOf(time: number): number {
  return Math.floor(time / DAY)
}

function firstTries(seen: readonly SeenRecipient[]): SeenRecipient[] {
  const first = new Map<string, SeenRecipient>()
  for (const one of seen.toSorted((left, right) => left.at - right.at)) {
    const name = `${one.source} ${one.message}`
    if (!first.has(name)) first.set(name, one)
  }
  return [...first.values()]
}

function mostInHourByDay(tries: readonly SeenRecipient[]): Map<number, number> {
  const most = new Map<number, number>()
  let oldest = 0
  for (const [index, { at }] of tries.entries()) {
    while ((tries[oldest]?.at ?? at) <= at - HOUR) oldest++
    most.set(dayOf(at), Math.max(most.get(dayOf(at)) ?? 0, index - oldest + 1))
  }
  return most
}
