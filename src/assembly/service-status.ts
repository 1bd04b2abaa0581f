/**
 * How the service is, in one line: what `systemctl status` shows. Never rejects.
 */
import type { Clock } from '../base/clock.ts'
import { SECOND } from '../base/clock.ts'
import type { DiskGuard } from '../base/disk-guard.ts'
import type { Egress } from '../egress/egress.ts'
import type { Store } from '../store/store.ts'

export interface ServiceStatusParts {
  store: Pick<Store, 'queueSummary'>
  egress: Pick<Egress, 'sendingPools'>
  disk: Pick<DiskGuard, 'mayDeliver'>
  clock: Clock
}

export async function serviceStatus({ store, egress, disk, clock }: ServiceStatusParts): Promise<string> {
  const now = clock.now()
  const queue = await store.queueSummary(now).catch(() => null)
  if (queue === null) return 'the database does not answer'
  const { waiting, sending, oldestDueAt } = queue
  const late = oldestDueAt === null ? 0 : Math.max(0, Math.floor((now - oldestDueAt) / SECOND))
  const warnings = [
    ...(disk.mayDeliver() ? [] : ['the disk is full']),
    ...(egress.sendingPools().length > 0 ? [] : ['no IP can send']),
  ]
  const text = `${waiting} waiting, ${sending} being sent${late > 0 ? `, the oldest due for ${late} s` : ''}`
  return [text, ...warnings].join('; ')
}
