/**
 * Who holds which claimed row: the parts that truly have it, not the ready window, which only counts. From when and
 * until when, stands in delivery/README.md "Who holds a row". And where a message is, to explain why it is still
 * `sending`. Reads and changes nothing.
 */
import type { Clock } from '../base/clock.ts'
import type { Whereabouts } from '../mail/whereabouts.ts'
import type { ClaimedMessage } from '../store/records/claim-records.ts'
import type { DeliveryThreads } from './delivery-threads.ts'
import type { Paths } from './place/paths.ts'
import type { MessagePlacer, PlacedRow } from './place/place-messages.ts'
import type { OutcomeRecorder } from './settle/outcome-recorder.ts'
import type { SettleTries } from './settle/settle-tries.ts'

export type HeldRow = { message: ClaimedMessage } & (
  | { by: 'placer' }
  | { by: 'path'; row: PlacedRow }
  | { by: 'thread'; row: PlacedRow; thread: number }
  | { by: 'recorder'; at: number } // since then
)

/** By claim. */
export type Holders = () => ReadonlyMap<number, HeldRow>

type HoldersOptions = { placer: MessagePlacer; paths: Paths<PlacedRow>; tries: SettleTries; recorder: OutcomeRecorder }

export function createHolders({ placer, paths, tries, recorder }: HoldersOptions): Holders {
  return () => {
    const held = new Map<number, HeldRow>()
    const add = (row: HeldRow): void => void held.set(row.message.claim, row)
    for (const message of placer.held()) add({ message, by: 'placer' })
    for (const row of paths.held()) add({ message: row.message, by: 'path', row })
    for (const { row, thread } of tries.held()) add({ message: row.message, by: 'thread', row, thread })
    for (const { message, at } of recorder.held()) add({ message, by: 'recorder', at })
    return held
  }
}

type WhereIsOptions = { clock: Clock; holders: Holders; threads: Pick<DeliveryThreads, 'where'> }

/**
 * Resolves with undefined when nobody holds the message, or the thread that was given it does not have it. A thread
 * that does not answer within a second, or dies meanwhile, is told as silent. Never rejects.
 */
export function createWhereIs({ clock, holders, threads }: WhereIsOptions) {
  /** By the newest claim of the message: the end of an older one may not have been heard yet. */
  function find(messageId: string): HeldRow | undefined {
    const all = [...holders().values()].filter(({ message }) => message.id === messageId)
    return all.toSorted((one, other) => other.message.claim - one.message.claim)[0]
  }

  async function inThread(held: Extract<HeldRow, { by: 'thread' }>): Promise<Whereabouts | undefined> {
    const { message, thread } = held
    const place = await threads.where(thread, message.claim)
    // The message may have gone on meanwhile: a result that left the thread before its answer was heard before it.
    const now = find(message.id)
    if (now?.by !== 'thread' || now.message.claim !== message.claim) return whereIs(message.id)
    return place === null ? undefined : { kind: 'thread', thread, ...roadOf(held), place: place ?? null }
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

  return whereIs
}

function roadOf({ row: { facts, ip } }: Extract<HeldRow, { by: 'path' | 'thread' }>): { from: string; to: string } {
  return { from: ip?.address ?? facts.plan.source, to: facts.isp }
}
