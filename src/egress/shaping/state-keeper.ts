/**
 * Brings what paths are under into the store and back: what matters at once, small changes with the next `tick`. What
 * the store refuses is logged and saved with the next `tick`; `load` and `saveAll` reject with its reason.
 */
import { errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import type { PathStateRecord } from '../../store/records/warmup-records.ts'
import type { Store } from '../../store/store.ts'
import type { ShapingRecord, ShapingRecords, ShapingSettings } from './records.ts'
import { restore, stateText, storedKey } from './saved-state.ts'
import type { ShapingSignals } from './shaping.ts'

/** What the parts of shaping share; `create-shaping.ts` makes it. */
export interface ShapingParts {
  now: () => number
  logger: Logger
  settings: () => ShapingSettings
  records: ShapingRecords
  keeper: ReturnType<typeof createStateKeeper>
  signals: ShapingSignals
  /** Something ends then. */
  wakeAt: (time: number) => void
  /** More may go now. */
  onOpen: () => void
}

/** Changes that one verb stores: nobody else waits for long, in this thread or in that of the store. */
const MOST_AT_ONCE = 100
/** At the end: a stop with 96,000 paths takes half the time that it does with parts of 100. */
const MOST_AT_ONCE_AT_END = 5_000
/** Small changes that one tick looks at. */
const MOST_SMALL_CHANGES = 2_000

export function createStateKeeper(
  store: Pick<Store, 'loadPathStates' | 'savePathStates'>,
  now: () => number,
  logger: Logger,
  records: ShapingRecords,
) {
  const urgent = new Set<ShapingRecord>()
  const stored = createStoredStates(store, now)
  const { touched, saveTouched } = createSmallChanges(stored.save)
  let saving: Promise<void> | undefined

  async function saveUrgent(): Promise<void> {
    while (urgent.size > 0) {
      const changed = [...urgent]
      urgent.clear()
      try {
        await stored.save(changed, MOST_AT_ONCE)
      } catch (thrown) {
        // In front: the next tick looks at so many.
        const others = [...touched]
        touched.clear()
        for (const record of [...changed, ...others]) touched.add(record)
        logger.error({ error: errorText(thrown), paths: changed.length }, 'states of paths could not be saved')
        return
      }
    }
  }

  function startSaving(): Promise<void> {
    saving ??= saveUrgent().finally(() => {
      saving = undefined
      if (urgent.size > 0) void startSaving()
    })
    return saving
  }

  return {
    /** `isWanted`: by the IP, which is empty for what is of no IP. */
    async load(isWanted: (ip: string) => boolean): Promise<void> {
      for (const row of await store.loadPathStates()) {
        if (!isWanted(row.ip)) continue
        stored.note(row)
        const isRead = restore(records, row)
        if (!isRead) logger.warn({ ip: row.ip, route: row.route }, 'state of a path cannot be read; it starts as new')
      }
    },
    /** It is saved as soon as the store has taken what came before. */
    saveSoon(record: ShapingRecord): void {
      urgent.add(record)
      touched.delete(record)
      // What else happens in this turn goes with it.
      queueMicrotask(() => void startSaving())
    },
    /** It is saved with the next `tick`, if what would be stored is different at all. */
    saveLater(record: ShapingRecord): void {
      if (!urgent.has(record)) touched.add(record)
    },
    async tick(): Promise<void> {
      await startSaving()
      await saveTouched(MOST_SMALL_CHANGES, MOST_AT_ONCE)
    },
    /** At the end, when nobody else waits. */
    async saveAll(): Promise<void> {
      await startSaving()
      await saveTouched(Infinity, MOST_AT_ONCE_AT_END)
    },
  }
}

/** Changes that a tick saves. The saves go one after the other: what one has in hand may come back to `touched`. */
function createSmallChanges(save: (changed: readonly ShapingRecord[], mostAtOnce: number) => Promise<void>) {
  const touched = new Set<ShapingRecord>()
  let lastSaved = Promise.resolve()

  async function saveSome(most: number, mostAtOnce: number): Promise<void> {
    const changed = [...touched].slice(0, most)
    for (const record of changed) touched.delete(record)
    try {
      await save(changed, mostAtOnce)
    } catch (thrown) {
      for (const record of changed) touched.add(record)
      throw thrown
    }
  }

  return {
    touched,
    /** Resolves after every save that was asked for earlier: only then is anybody told. */
    saveTouched(most: number, mostAtOnce: number): Promise<void> {
      const saved = lastSaved.then(() => saveSome(most, mostAtOnce))
      lastSaved = saved.catch(() => {})
      return saved
    },
  }
}

/** What the store has, as text; what is not noted has none. */
function createStoredStates(store: Pick<Store, 'savePathStates'>, now: () => number) {
  const texts = new Map<string, string>()
  const nameOf = ({ ip, route }: { ip: string; route: string }): string => `${ip}\n${route}`
  const note = (row: Pick<PathStateRecord, 'ip' | 'route' | 'state'>): void => {
    if (row.state === '') texts.delete(nameOf(row))
    else texts.set(nameOf(row), row.state)
  }
  return {
    note,
    /** Writes those whose text the store does not have yet, so many in one verb. */
    async save(changed: readonly ShapingRecord[], mostAtOnce: number): Promise<void> {
      for (let first = 0; first < changed.length; first += mostAtOnce) {
        const rows = changed
          .slice(first, first + mostAtOnce)
          .map((record) => ({ ...storedKey(record), state: stateText(record) }))
          .filter((row) => row.state !== (texts.get(nameOf(row)) ?? ''))
        if (rows.length === 0) continue
        await store.savePathStates(rows.map((row) => ({ ...row, savedAt: now() })))
        rows.forEach(note)
      }
    },
  }
}
