/**
 * What the database is full of, for `sternpost status` (store/README.md "Retention").
 */
import { callServer } from '../shared/api-client.ts'
import { byteText } from '../shared/byte-text.ts'
import type { ServerAddress } from '../shared/server-address.ts'
import { readAnswer } from '../shared/verb.ts'

export interface StorageView {
  file_bytes: number
  used_bytes: number
  log_bytes: number
  free_bytes: number
  kinds: { kind: string; bytes: number }[]
  growth_per_day: number | null
  /** null: it does not grow, or is not known yet. */
  days_left: number | null
  budget_bytes: number | null
}

export async function storageOf(server: ServerAddress): Promise<StorageView> {
  const answer = await callServer(server, { method: 'GET', path: '/v1/admin/storage' })
  return readAnswer<StorageView>(answer, 'used_bytes', 'free_bytes', 'kinds')
}

/** `1.2 GiB in use, 30.0 GiB free; grows by 80.0 MiB a day, 370 days left`. */
export function storageText(storage: StorageView): string {
  const { used_bytes: used, free_bytes: free, growth_per_day: growth, days_left: days, budget_bytes: budget } = storage
  const limit = budget === null ? '' : ` of a budget of ${byteText(budget)}`
  const grows = growth === null || growth <= 0 ? '' : `; grows by ${byteText(growth)} a day`
  return `${byteText(used)} in use${limit}, ${byteText(free)} free${grows}${days === null ? '' : `, ${days} days left`}`
}

/** Largest first, without those that are nothing beside the others. */
export function kindsText({ kinds, used_bytes: used }: StorageView): string | null {
  const shown = kinds.filter(({ bytes }) => bytes * 100 > used).toSorted((left, right) => right.bytes - left.bytes)
  return shown.length === 0
    ? null
    : shown.map(({ kind, bytes }) => `${kind.replaceAll('_', ' ')} ${byteText(bytes)}`).join(', ')
}
