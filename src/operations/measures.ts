/**
 * Metrics that are only known by asking: what waits, how far each IP is, files and disks. Asked when somebody reads
 * them, at most every five seconds: a dashboard in many browsers costs the store nothing.
 */
import { SECOND, toUnixSeconds, type Clock } from '../base/clock.ts'
import type { DiskGuard } from '../base/disk-guard.ts'
import type { Metrics } from '../base/metrics.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import type { Dispatcher } from '../delivery/dispatcher.ts'
import type { Egress } from '../egress/egress.ts'
import type { Warmup } from '../egress/moves/warmup.ts'
import { CAPTURE_POOL } from '../mail/simulator.ts'
import { postgresFacts } from '../store/open/server-facts.ts'
import type { Store } from '../store/store.ts'

interface MeasuredParts {
  metrics: Metrics
  clock: Clock
  store: Pick<Store, 'figures'>
  egress: Pick<Egress, 'poolNames'>
  warmup: Pick<Warmup, 'list'>
  disk: Pick<DiskGuard, 'freeBytes'>
  dispatcher: Pick<Dispatcher, 'waitingByPool' | 'waitingByReason'>
}

const ASK_AGAIN_AFTER = 5 * SECOND
/** Each time by a new connection. */
const ASK_SERVER_AFTER = 30 * SECOND

export function measureWhenRead(parts: MeasuredParts, storage: ServerSettings['storage']): void {
  const { metrics } = parts
  metrics.diskMinFreeBytes.set(storage.min_free_accept)
  metrics.walMaxBytes.set(storage.wal_max)
  const measureServer = createServerMeasure(metrics, storage)
  let askedAt = Number.NEGATIVE_INFINITY
  let isAsking = false
  metrics.beforeReading(async () => {
    const now = performance.now()
    // Where the store hangs, questions must not pile up in front of it.
    if (isAsking || now - askedAt < ASK_AGAIN_AFTER) return
    askedAt = now
    metrics.diskFreeBytes.set(parts.disk.freeBytes())
    isAsking = true
    // One that fails leaves the others what they are.
    await Promise.allSettled([measureStore(parts), measureIps(parts), measureServer()])
    isAsking = false
  })
}

async function measureStore({ store, clock, metrics, dispatcher, egress }: MeasuredParts): Promise<void> {
  const { database, writeAheadLog, sending, webhooks } = await store.figures()
  metrics.databaseBytes.set(database)
  metrics.walBytes.set(writeAheadLog)
  const now = clock.now()
  for (const gauge of [metrics.queueMessages, metrics.queueOldest, metrics.queueWaiting]) gauge.reset()
  for (const pool of egress.poolNames()) {
    metrics.queueMessages.set({ state: 'waiting', pool }, 0)
    metrics.queueMessages.set({ state: 'sending', pool }, 0)
    metrics.queueOldest.set({ pool }, 0)
  }
  for (const [pool, { waiting, dueSince }] of dispatcher.waitingByPool()) {
    metrics.queueMessages.set({ state: 'waiting', pool }, waiting)
    metrics.queueOldest.set({ pool }, dueSince === null ? 0 : toUnixSeconds(now - dueSince))
  }
  for (const { pool, messages } of sending) {
    if (pool !== CAPTURE_POOL) metrics.queueMessages.set({ state: 'sending', pool }, messages)
  }
  for (const [reason, count] of Object.entries(dispatcher.waitingByReason())) {
    metrics.queueWaiting.set({ reason }, count)
  }
  metrics.webhookQueue.set(webhooks.pending)
  metrics.webhookDeadLetters.set(webhooks.deadLetters)
  // A replay is made a moment ahead.
  metrics.webhookOldest.set(toUnixSeconds(Math.max(0, now - (webhooks.oldestMadeAt ?? now))))
}

function createServerMeasure(metrics: Metrics, { engine, url }: ServerSettings['storage']): () => Promise<void> {
  let askedAt = Number.NEGATIVE_INFINITY
  return async () => {
    const now = performance.now()
    if (engine !== 'postgres' || url === null || now - askedAt < ASK_SERVER_AFTER) return
    askedAt = now
    const facts = await postgresFacts(url)
    metrics.postgresConnections.set(facts.connections)
    metrics.postgresMostConnections.set(facts.mostConnections)
    metrics.postgresOldestSnapshot.set(facts.oldestSnapshotSeconds)
    metrics.postgresUnsafeStandbys.set(facts.synchronousStandbyNames === '' ? facts.standbys : 0)
    for (const { table, deadRows } of facts.tables) metrics.postgresDeadRows.set({ table }, deadRows)
  }
}

async function measureIps({ metrics, warmup }: MeasuredParts): Promise<void> {
  const views = await warmup.list()
  const { ipState, ipListed, ipWarmupLimit, ipWarmupStage, ipWarmupUsed } = metrics
  for (const gauge of [ipState, ipListed, ipWarmupLimit, ipWarmupStage, ipWarmupUsed]) gauge.reset()
  for (const { ip, status, warmup: ramp, blocklists } of views) {
    ipState.set({ ip, state: status }, 1)
    for (const { zone, isListed } of blocklists) {
      if (isListed !== null) ipListed.set({ ip, list: zone }, Number(isListed))
    }
    if (ramp === null || ramp.dailyLimit === null) continue
    ipWarmupLimit.set({ ip }, ramp.dailyLimit)
    ipWarmupUsed.set({ ip }, ramp.sentToday)
    ipWarmupStage.set({ ip }, ramp.stage)
  }
}
