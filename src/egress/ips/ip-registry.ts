/**
 * The egress IPs as they are now: pools.yaml, what the store knows of each IP, and what this machine can bind. The
 * store holds state and stage, the files pool, weight and curve; a reload takes over the files, the state stays. An IP
 * that leaves the files keeps its record and history; one that comes back goes on where it was. A change of state is
 * guarded by the version that was read: of two at once, the second is decided anew. Rejects when the store does, and
 * changes nothing then.
 */
import type { Logger } from '../../base/logger.ts'
import { utcDay } from '../../base/utc-day.ts'
import type { WarmupSettings } from '../../config/settings/warmup-settings.ts'
import type { IpRecord } from '../../store/records/warmup-records.ts'
import type { Store } from '../../store/store.ts'
import { allowanceRule, findCurve } from '../warmup/warmup-curve.ts'
import { canMove, moveIp, type MovedIp } from '../warmup/warmup-states.ts'
import { createCurveChanges } from './curve-changes.ts'
import type { EgressIp } from './egress-ip.ts'
import {
  configuredIps,
  egressIp,
  firstRecord,
  type ChangeIp,
  type ConfiguredIp,
  type KnownIp,
  type MoveIp,
} from './known-ip.ts'
import type { EgressOutside } from './outside.ts'
import { MINUTE } from '../../base/clock.ts'

export type IpRegistry = ReturnType<typeof createIpRegistry>

/** Rounds against other changes of the same record; each of them has got on in the meantime. */
const MOST_ROUNDS = 20

export function createIpRegistry(options: EgressOutside) {
  const { configuration, store, clock } = options
  const records = new Map<string, IpRecord>()
  const disabled = createDisabledIps(options)
  const listeners: (() => void)[] = []
  let known = new Map<string, KnownIp>()
  let ips: EgressIp[] = []
  let byPool = new Map<string, EgressIp[]>()
  let elsewhere = new Map<EgressIp, EgressIp>()
  const configured = (): ConfiguredIp[] => configuredIps(configuration.current().pools.pools)

  const find = (address: string): KnownIp | undefined => known.get(address)
  const { change, move } = createIpChanges(options, find, refresh)
  const all = (): readonly KnownIp[] => [...known.values()]
  const curves = createCurveChanges(options, { find, move: createIpChanges(options, find, reread).move, known: all })
  return {
    apply,
    ips: (): readonly EgressIp[] => ips,
    known: all,
    find,
    /** As the node has it that sends from it. */
    anywhere: (ip: EgressIp): EgressIp => elsewhere.get(ip) ?? ip,
    inPool: (pool: string): readonly EgressIp[] => byPool.get(pool) ?? [],
    isBindable: disabled.isBindable,
    disable(address: string, reason: string, source = find(address)?.ip.source): void {
      if (source === undefined || source !== find(address)?.ip.source || disabled.reasonOf(address) !== null) return
      disabled.disable(address, reason)
      rebuild()
      void tryDisabled()
    },
    tryDisabled,
    refresh,
    rebuild,
    change,
    move,
    onChange: (listener: () => void): void => void listeners.push(listener),
  }

  /** Disabled IPs that can be bound again are used again. */
  async function tryDisabled(): Promise<void> {
    if (await disabled.tryAgain((address) => known.get(address)?.ip.source)) rebuild()
  }

  /** Reads files and records, again when the files have changed; tests whether new IPs can be bound. */
  async function apply(): Promise<void> {
    const settings = configured().map((entry) => entry.settings)
    const fresh = settings.filter(({ address }) => !records.has(address))
    if (fresh.length > 0) await store.addIpRecords(fresh.map((ip) => firstRecord(ip, clock.now())))
    await disabled.test(settings)
    await reread()
    // Told behind it: what came for caps that today's rows do not have yet, these would refuse.
    await curves.follow().finally(rebuild)
    await tryDisabled()
  }

  function rebuild(): void {
    arrange()
    for (const listener of listeners) listener()
  }

  function arrange(): void {
    for (const { settings } of configured()) disabled.forgetElsewhere(settings.address)
    const { entries, ...arranged } = knownIps(options, configured(), records, disabled)
    elsewhere = arranged.elsewhere
    entries.forEach(curves.remember)
    known = new Map(entries.map((entry) => [entry.ip.address, entry]))
    ips = entries.map(({ ip }) => ip)
    byPool = Map.groupBy(ips, ({ pool }) => pool)
  }

  async function refresh(): Promise<void> {
    // The time of the last grant alone changes nothing for anybody.
    if (await reread()) rebuild()
  }

  /** Nobody is told. */
  function reread(): Promise<boolean> {
    return readRecords(store, records, arrange)
  }
}

/** Whether there was news. */
async function readRecords(
  store: EgressOutside['store'],
  records: Map<string, IpRecord>,
  onRead: () => void,
): Promise<boolean> {
  const found = await store.ipRecords()
  const isNews = found.some(({ ip, version }) => records.get(ip)?.version !== version)
  for (const record of found) records.set(record.ip, record)
  onRead()
  return isNews
}

/** What is known of each IP of the files; `elsewhere`: how the node has it that sends from it. */
function knownIps(
  { configuration, clock, refusalOf, isElsewhere }: EgressOutside,
  configured: readonly ConfiguredIp[],
  records: ReadonlyMap<string, IpRecord>,
  disabled: Pick<ReturnType<typeof createDisabledIps>, 'reasonOf'>,
) {
  const { warmup } = configuration.current()
  const elsewhere = new Map<EgressIp, EgressIp>()
  const entries = configured.map((entry): KnownIp => {
    const { address, curve: wanted } = entry.settings
    const record = records.get(address) ?? firstRecord(entry.settings, clock.now())
    const curve = findCurve(warmup, [record.curve, wanted])
    const ip = egressIp(entry, record, curve.curve, disabled.reasonOf(address) ?? refusalOf(address))
    if (isElsewhere(address)) elsewhere.set(ip, egressIp(entry, record, curve.curve, null))
    return { ip, record, curve }
  })
  return { entries, elsewhere }
}

function createIpChanges(
  { configuration, store, clock, logger, onEvents }: EgressOutside,
  find: (address: string) => KnownIp | undefined,
  refresh: () => Promise<unknown>,
): { change: ChangeIp; move: MoveIp } {
  /** Decides on the record as it is in the store, and stores what was decided with audit and events. */
  const change: ChangeIp = async (address, decide) => {
    for (let round = 0; round < MOST_ROUNDS; round++) {
      const current = find(address)
      if (current === undefined) return undefined
      const moved = decide(current.record, current)
      if (moved === null || moved.record === current.record) return current
      const { record, audit, events } = moved
      const caps = capsOf(current.record, moved, configuration.current().warmup, utcDay(clock.now()))
      const isDone = await store.changeIp({ record, audit, events, caps })
      await refresh()
      if (!isDone) continue
      logMoves(logger, moved)
      if (events.length > 0) onEvents()
      return find(address)
    }
    throw new Error(`the state of ${address} changes too often`)
  }
  return {
    change,
    /** A move at this moment; what the state does not allow is none. */
    move: (address, decide) =>
      change(address, (record, current) => {
        const decided = decide(record, current)
        if (decided === null || !canMove(record, decided.action)) return null
        return moveIp(record, current.ip.pool, { ...decided, now: clock.now() })
      }),
  }
}

function logMoves(logger: Logger, { record, audit }: MovedIp): void {
  for (const { action, actor, fromState, toState, fromStage, toStage, reason } of audit) {
    const fields = { from_state: fromState, to_state: toState, from_stage: fromStage, to_stage: toStage }
    logger.info({ ip: record.ip, action, actor, ...fields, reason }, 'egress IP moved')
  }
}

type ChangedCaps = Parameters<Store['changeIp']>[0]['caps']

/** Today's rows follow a new stage. */
function capsOf(before: IpRecord, { record: after, audit }: MovedIp, warmup: WarmupSettings, day: string): ChangedCaps {
  const isOtherRule = audit.some(({ action }) => action === 'stage')
  const isSame = before.stage === after.stage && before.curve === after.curve && !isOtherRule
  if (isSame || after.stage === null || after.state === 'warmed') return null
  const { curve } = findCurve(warmup, [after.curve])
  const { cap, providerCaps, defaultProviderCap } = allowanceRule(curve, after.stage, day)
  return { day, cap, providerCaps, defaultProviderCap }
}

interface Disabled {
  reason: string
  since: number
  /** The bind test has failed since: it is free to come back as soon as one succeeds. */
  isUnplumbed: boolean
}

/** How long an IP that can be bound stays disabled. */
const DISABLED_FOR = 30 * MINUTE

/**
 * The IPs that nothing leaves from because of this machine: a source that cannot be bound, or one that was given up. An
 * IP whose source cannot be bound is disabled as `unplumbed` and used again as soon as it can; so is one that was given
 * up because its address was gone. One that is disabled for another reason, though it can be bound, is used again after
 * half an hour. Another source is never taken in its place (delivery/README.md "The SMTP session"). One that this node
 * does not hold is not judged here: it is bound before it is held (nodes/README.md "Egress IPs").
 */
function createDisabledIps({ clock, canBind, logger, refusalOf }: EgressOutside) {
  const disabled = new Map<string, Disabled>()
  const bound = new Set<string>()

  function disable(address: string, reason: string, isUnplumbed: boolean): void {
    disabled.set(address, { reason, since: clock.now(), isUnplumbed })
    logger.warn({ ip: address, reason }, 'egress IP disabled')
  }

  return {
    /** Null: it is not disabled. */
    reasonOf: (address: string): string | null => disabled.get(address)?.reason ?? null,
    isBindable: (address: string): boolean => disabled.get(address)?.isUnplumbed !== true,
    disable: (address: string, reason: string): void => disable(address, reason, false),
    forgetElsewhere(address: string): void {
      if (refusalOf(address) !== null) disabled.delete(address)
    },
    /** Tests those that were not tested yet. */
    async test(ips: readonly { address: string; source: string }[]): Promise<void> {
      const isOpen = (address: string): boolean => !disabled.has(address) && refusalOf(address) === null
      const untested = ips.filter(({ address, source }) => !bound.has(source) && isOpen(address))
      const answers = await Promise.all(untested.map(({ source }) => canBind(source)))
      untested.forEach(({ address, source }, index) => {
        if (answers[index] === true) bound.add(source)
        else disable(address, 'unplumbed', true)
      })
    },
    /** True: one is used again. `sourceOf`: undefined for one that left the files, which is tested when it is back. */
    async tryAgain(sourceOf: (address: string) => string | undefined): Promise<boolean> {
      let isOneBack = false
      await Promise.all(
        [...disabled].map(async ([address, entry]) => {
          const source = sourceOf(address)
          if (source === undefined) return void disabled.delete(address)
          if (!(await canBind(source))) entry.isUnplumbed = true
          else if (entry.isUnplumbed || clock.now() - entry.since >= DISABLED_FOR) {
            disabled.delete(address)
            isOneBack = true
            bound.add(source)
            logger.info({ ip: address, reason: entry.reason }, 'egress IP used again')
          }
        }),
      )
      return isOneBack
    },
  }
}
