/**
 * Who holds which claimed row: the parts that truly have it, not the ready window, which only counts. From when and
 * until when, stands in delivery/README.md "Who holds a row". Pure; never throws.
 */
import type { ClaimedMessage } from '../store/records/claim-records.ts'
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

interface HoldersOptions {
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
