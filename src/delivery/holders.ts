/**
 * Who holds which claimed row: the parts that truly have it, not the ready window, which only counts.
 *
 * | a row is held by | from                           | until                                                       |
 * | ---------------- | ------------------------------ | ----------------------------------------------------------- |
 * | the placer       | the answer to its claim        | all rows of its placement have a path, or go back           |
 * | its path         | it has a path                  | it goes to a thread, or back                                |
 * | its thread       | it goes to a thread            | its result is heard, or the thread is dead                  |
 * | the recorder     | its outcome or return is known | the store has answered that it is committed                 |
 *
 * Each hands a row to the next one in the same turn of the event loop, so a claim whose answer was heard is with one of
 * them (for a moment with two) until the store has answered its end, and never again afterwards. Rows without a route
 * go from the answer to the recorder directly. What nobody holds is found by `orphans.ts`. Pure; never throws.
 */
import type { ClaimedMessage } from '../store/records/records.ts'
import type { OutcomeRecorder } from './settle/outcome-recorder.ts'
import type { Paths } from './place/paths.ts'
import type { MessagePlacer } from './place/place-messages.ts'
import type { PlacedRow } from './place/placed-row.ts'
import type { SettleTries } from './settle/settle-tries.ts'

export type HeldRow = { message: ClaimedMessage } & (
  | { by: 'placer' }
  | { by: 'path'; row: PlacedRow }
  | { by: 'thread'; row: PlacedRow; thread: number }
  | { by: 'recorder'; at: number } // since then
)

/** By claim. */
export type Holders = () => ReadonlyMap<number, HeldRow>

export interface HoldersOptions {
  placer: Pick<MessagePlacer, 'held'>
  paths: Pick<Paths<PlacedRow>, 'held'>
  tries: Pick<SettleTries, 'held'>
  recorder: Pick<OutcomeRecorder, 'held'>
}

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
