/**
 * Reading the configuration again while the server runs: everything is validated first, then applied at once, or not at
 * all (config/README.md "Reload"). A bad file, a full disk, or a store that cannot take the change over, leaves the
 * running configuration as it is: `reload` rejects with the ConfigurationError, ServiceError `unavailable` or the
 * reason. Reloads come one after the other; a signal that comes while one is under way leads to one more.
 */
import { ConfigurationError, errorText, ServiceError, type Mistake } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import type { ServiceNotices } from '../base/service/service-manager.ts'
import { changeLine, configurationDiff, withLiveKeys, type ConfigurationChange } from '../config/configuration-diff.ts'
import { explainMistakes } from '../config/source/explain-mistake.ts'
import { isShippedInPlace } from '../config/source/read-folder.ts'
import type { ReplaceableConfiguration } from '../config/live-configuration.ts'
import type { Configuration } from '../config/load-configuration.ts'
import type { Egress } from '../egress/egress.ts'
import type { ReloadResult } from '../http/exchange/operator-features.ts'
import type { Store } from '../store/store.ts'
import type { DoorCertificates } from './certificates.ts'

interface ReloadReport {
  isDryRun: boolean
  revision: number
  changes: ConfigurationChange[]
  lines: string[]
  /** Waiting messages of pools that are gone, which are in the default pool now. */
  moved: { pool: string; messages: number }[]
  warnings: readonly Mistake[]
}

export type Reload = ReturnType<typeof createReload>

interface ReloadOptions {
  live: ReplaceableConfiguration
  /** Reads the files anew; throws ConfigurationError. */
  load: () => Configuration
  store: Pick<Store, 'moveOrphans'>
  /** The store can keep what follows from a change. */
  hasSpace: () => boolean
  /** Waiting messages are under other keys now. */
  onMoved: () => void
  readCertificates: DoorCertificates['read']
  /** Told when a reload begins and when it is over. */
  notices?: ServiceNotices | undefined
  metrics: Pick<Metrics, 'configurationReloads'>
  logger: Logger
}

export function createReload(options: ReloadOptions) {
  const { live, logger, metrics, notices } = options
  let last: Promise<unknown> = Promise.resolve()
  let isSignalled = false

  async function apply(isDryRun: boolean): Promise<ReloadReport> {
    const before = live.current()
    const read = options.load()
    refuseVanished(before, read)
    const certificates = options.readCertificates(read.server.tls.certificates)
    const changes = [...configurationDiff(before, read), ...certificates.changes]
    const { pools, default_pool: target } = read.pools
    const report = { isDryRun, changes, warnings: read.warnings }
    if (isDryRun) {
      return { ...report, revision: live.revision(), lines: changes.map((each) => line(each, target)), moved: [] }
    }
    if (!options.hasSpace()) throw new ServiceError('unavailable', 'the disk is full: nothing can be taken over')
    let moved: ReloadReport['moved'] = []
    // Where the mail of a pool cannot move, the pool stays; mail that has moved does not come back.
    await live.replace(withLiveKeys(before, read), async () => {
      moved = await options.store.moveOrphans(Object.keys(pools), target)
    })
    certificates.use()
    if (moved.length > 0) options.onMoved()
    return { ...report, revision: live.revision(), lines: changes.map((each) => line(each, target, moved)), moved }
  }

  /** With `isDryRun` nothing changes. */
  function reload(isDryRun: boolean): Promise<ReloadReport> {
    const next = last.then(() => {
      if (isDryRun) return apply(true)
      notices?.reloading()
      return apply(false).finally(() => notices?.ready())
    })
    const note = (value: number) => (): void => {
      if (!isDryRun) metrics.configurationReloads.set(value)
    }
    last = next.then(note(1), note(0))
    return next
  }

  return {
    reload,
    onSignal(): void {
      if (isSignalled) return
      isSignalled = true
      void last
        .then(async () => {
          isSignalled = false
          const { lines, revision } = await reload(false)
          logger.info({ revision, changes: lines }, 'configuration reloaded')
        })
        .catch((thrown: unknown) => {
          const problem = thrown instanceof ConfigurationError ? explainMistakes(thrown.mistakes) : errorText(thrown)
          logger.error({ problem }, 'configuration not reloaded; the old one stays in force')
        })
    },
  }
}

/**
 * Whoever saves a file may take it away for a moment: the pools of the shipped one are for trying out, and mail would
 * leave from their IPs.
 */
function refuseVanished(before: Configuration, read: Configuration): void {
  const known = before.warnings.filter(isShippedInPlace).map(({ file }) => file)
  const gone = read.warnings.filter((each) => isShippedInPlace(each) && !known.includes(each.file))
  const message = 'is gone since it was read last: put it back'
  if (gone.length > 0) throw new ConfigurationError(gone.map((each) => ({ ...each, severity: 'error', message })))
}

/** The line of a removed pool says what became of its mail, or what will: nothing brings that back. */
function line(change: ConfigurationChange, target: string, moved?: ReloadReport['moved']): string {
  const text = changeLine(change)
  const pool = change.kind === 'removed' ? /^pool (\S+)$/.exec(change.what)?.[1] : undefined
  if (pool === undefined) return text
  if (moved === undefined)
    return `${text} (what is queued in it, and new mail of domains that name it, will use ${target})`
  const found = moved.find((each) => each.pool === pool)
  return found === undefined ? text : `${text} (${found.messages} queued messages moved to ${target})`
}

type ReloadResultParts = Pick<Reload, 'reload'> & { live: ReplaceableConfiguration; egress: Pick<Egress, 'ips'> }

/** For an operator: how long it took, what follows from each change, and mistakes in the files as a result. */
export async function reloadResult(
  { live, reload, egress }: ReloadResultParts,
  isDryRun: boolean,
): Promise<ReloadResult> {
  const startedAt = performance.now()
  const milliseconds = (): number => performance.now() - startedAt
  try {
    const report = await reload(isDryRun)
    const { revision, changes, moved, warnings: mistakes } = report
    const lines = printedLines(report, egress)
    return { isApplied: !isDryRun, revision, changes, lines, moved, mistakes, milliseconds: milliseconds() }
  } catch (thrown) {
    if (!(thrown instanceof ConfigurationError)) throw thrown
    const nothing = { isApplied: false, changes: [], lines: [], moved: [] }
    return { ...nothing, revision: live.revision(), mistakes: thrown.mistakes, milliseconds: milliseconds() }
  }
}

/** The line of a new IP says how its warmup begins. */
function printedLines({ isDryRun, changes, lines }: ReloadReport, egress: Pick<Egress, 'ips'>): string[] {
  if (isDryRun) return lines
  const cold = egress.ips().filter(({ state }) => state === 'cold')
  return lines.map((text, index) => {
    const change = changes[index]
    const ip = cold.find(({ address }) => change?.kind === 'added' && change.what === `ip ${address}`)
    return ip === undefined ? text : `${text} (cold; start it with: sternpost ip warmup start ${ip.address})`
  })
}
