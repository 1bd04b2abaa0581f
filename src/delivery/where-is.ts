/**
 * Where a claimed message is, to explain why it is still `sending`: who holds it (`holders.ts`), and what its delivery
 * thread says of it.
 *
 * Reads and changes nothing. A thread that does not answer within a second, or dies meanwhile, is told as silent. Never
 * rejects. Undefined: nobody holds it, or the thread that was given it does not have it.
 */
import type { Clock } from '../base/clock.ts'
import type { Whereabouts } from '../mail/whereabouts.ts'
import type { DeliveryThreads } from './delivery-threads.ts'
import type { HeldRow, Holders } from './holders.ts'

export type WhereIs = (messageId: string) => Promise<Whereabouts | undefined>

interface WhereIsOptions {
  clock: Clock
  holders: Holders
  threads: Pick<DeliveryThreads, 'where'>
}

export function createWhereIs({ clock, holders, threads }: WhereIsOptions): WhereIs {
  /** By the newest claim of the message: the end of an older one may not have been heard yet. */
  function find(messageId: string): HeldRow | undefined {
    const all = [...holders().values()].filter(({ message }) => message.id === messageId)
    return all.toSorted((one, other) => other.message.claim - one.message.claim)[0]
  }

  async function whereIs(messageId: string): Promise<Whereabouts | undefined> {
    const held = find(messageId)
    switch (held?.by) {
      case undefined:
        return undefined
      case 'placer':
        return { kind: 'placing' }
      case 'path':
        return { kind: 'path', ...roadOf(held) }
      case 'recorder':
        return { kind: 'recording', milliseconds: clock.now() - held.at }
      case 'thread':
        return inThread(held)
    }
  }

  async function inThread(held: Extract<HeldRow, { by: 'thread' }>): Promise<Whereabouts | undefined> {
    const {
      message: { id, claim },
      thread,
    } = held
    const place = await threads.where(thread, claim)
    // The message may have gone on meanwhile: a result that left the thread before its answer was heard before it.
    const now = find(id)
    if (now?.by !== 'thread' || now.message.claim !== claim) return whereIs(id)
    return place === null ? undefined : { kind: 'thread', thread, ...roadOf(held), place: place ?? null }
  }

  return whereIs
}

function roadOf({ row: { facts, ip } }: Extract<HeldRow, { by: 'path' | 'thread' }>): { from: string; to: string } {
  return { from: ip?.address ?? facts.plan.source, to: facts.isp }
}
