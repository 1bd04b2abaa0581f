/**
 * Which egress IPs this node sends from. An IP is taken where nobody lives who owns it: first its row, so that there is
 * one owner, then the operator's hook, which brings it here, then the bind test, then what is known of it is read. What
 * fails gives the row back, for others, and is tried again.
 *
 *   free -> taken (its row is ours) -> held        the road of an IP that comes
 *   held -> leaving -> free                        nothing begins from it, what had begun has ended, its hook has run
 *
 * One whose address has left this machine goes as well: others may bring it, and mail that keeps it is free.
 *
 * Never rejects but for `start`.
 */
import type { Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { IpOwner } from '../store/records/node-records.ts'
import type { RunIpHook } from './ip-hook.ts'

interface HeldIpsOptions {
  nodeId: string
  epoch: number
  /** Those that pools.yaml names and enables. */
  configured: () => readonly { address: string; source: string }[]
  /** The operator's program brings IPs here. */
  hasHook: () => boolean
  runHook: RunIpHook
  canBind: (address: string) => Promise<boolean>
  /** Before it is held: what others have left of it is read. */
  onTaken: (ip: string) => Promise<void>
  /** Before others may have it: what is known of it is stored. */
  onLeaving: (ip: string) => Promise<void>
  /** An IP is held, or is not any more, or another node has it. Resolves when what begins heeds it. */
  onChange: () => Promise<void>
  /** Mail is leaving from it. */
  isBusy: (ip: string) => boolean
  /** It was bound, and cannot be any more. */
  isGone: (ip: string) => boolean
  clock: Clock
  logger: Logger
}

const TRY_AGAIN_AFTER = 15_000
/** Mail that leaves from an IP which is to go has so long to end: as long as a stop lets it at most. */
const LONGEST_END = 60_000
const LOOK_AGAIN_AFTER = 200

export function createHeldIps(options: HeldIpsOptions) {
  const { nodeId, epoch, configured, canBind, clock, logger } = options
  const { held, underWay, problems, released, away, begin, fail, bring, leave, clear } = createRoad(options)
  let owners = new Map<string, IpOwner>()
  let isEnding = false

  const isOfOther = (ip: string): boolean => (owners.get(ip)?.epoch ?? epoch) !== epoch
  const mayTry = (ip: string): boolean => clock.now() >= (problems.get(ip)?.until ?? 0)

  /** Resolves when what began has ended. */
  async function settled(): Promise<void> {
    while (underWay.size > 0) await Promise.all(underWay.values())
  }

  return {
    /** What the next beat asks for. `mayHold`: false when all are to go; `mayTake`: false when none may come. */
    async wishes(mayHold: boolean, mayTake: boolean): Promise<{ takes: string[]; releases: string[] }> {
      const wanted = mayHold ? configured() : []
      for (const ip of held) {
        if (underWay.has(ip)) continue
        const found = wanted.find(({ address }) => address === ip)
        if (found !== undefined && options.isGone(ip)) fail(ip, `${found.source} cannot be bound here any more`)
        else if (found !== undefined) continue
        begin(ip, () => leave(ip))
      }
      const open = (mayTake ? wanted : []).filter(({ address }) => {
        const isIdle = !held.has(address) && !underWay.has(address) && !released.has(address)
        return isIdle && !isOfOther(address) && mayTry(address)
      })
      const takes = await Promise.all(
        open.map(async ({ address, source }) => (options.hasHook() || (await canBind(source)) ? [address] : [])),
      )
      return { takes: takes.flat(), releases: [...released] }
    },
    /** What the beat has found; `releases`: what it gave back. */
    heard(found: readonly IpOwner[], releases: readonly string[]): void {
      const before = owners
      owners = new Map(found.map((owner) => [owner.ip, owner]))
      // Whether mail is accepted follows from the IPs of all nodes.
      const isNew = (ip: string): boolean => owners.get(ip)?.nodeId !== before.get(ip)?.nodeId
      if (configured().some(({ address: ip }) => isOfOther(ip) && !held.has(ip) && isNew(ip))) void options.onChange()
      for (const ip of releases) released.delete(ip)
      for (const ip of held) {
        if (owners.get(ip)?.epoch === epoch || underWay.has(ip)) continue
        logger.error({ ip, owner: owners.get(ip)?.nodeId }, 'an egress IP is not of this node any more')
        begin(ip, () => leave(ip))
      }
      for (const { address, source } of configured()) {
        if (underWay.has(address)) continue
        const isMine = owners.get(address)?.epoch === epoch && !held.has(address) && !released.has(address)
        if (isMine && !isEnding) begin(address, () => bring(address, source))
        if (isOfOther(address) && !away.has(address)) begin(address, () => clear(address))
      }
    },
    /** Why nothing leaves from it here; null: it does. */
    refusalOf(ip: string): string | null {
      if (held.has(ip)) return null
      const owner = owners.get(ip)
      if (owner !== undefined && owner.nodeId !== nodeId) return `the node ${owner.nodeId} sends from it`
      return problems.get(ip)?.text ?? 'it is not taken yet'
    },
    isOfOther,
    held: (): string[] => [...held],
    problems: (): { ip: string; problem: string }[] =>
      configured().flatMap(({ address: ip }) => {
        const problem = problems.get(ip)?.text
        return problem === undefined || held.has(ip) || isOfOther(ip) ? [] : [{ ip, problem }]
      }),
    settled,
    /** Lets all go, for good: the beats that go on meanwhile bring none again. */
    async leaveAll(): Promise<void> {
      isEnding = true
      await settled()
      for (const ip of held) begin(ip, () => leave(ip))
      await settled()
    },
  }
}

/** How an IP comes and goes, and those that are somewhere on that road. */
function createRoad(options: HeldIpsOptions) {
  const { clock, logger } = options
  const held = new Set<string>()
  const underWay = new Map<string, Promise<void>>()
  /** Why it is not held, and when it is tried again. */
  const problems = new Map<string, { text: string; until: number }>()
  /** The next beat gives their rows back. */
  const released = new Set<string>()
  /** The hook has taken them from here since they were last brought. */
  const away = new Set<string>()

  async function problemOf(ip: string, source: string): Promise<string | null> {
    const problem = await options.runHook('acquire', ip)
    if (problem !== null) return problem
    if (!(await options.canBind(source))) return `${source} cannot be bound here`
    return options.onTaken(ip).then(
      () => null,
      (thrown: unknown) => errorText(thrown),
    )
  }

  function fail(ip: string, problem: string): void {
    problems.set(ip, { text: problem, until: clock.now() + TRY_AGAIN_AFTER })
  }

  async function takeAway(ip: string): Promise<void> {
    const problem = await options.runHook('release', ip)
    if (problem !== null) logger.error({ ip, reason: problem }, 'the hook of an egress IP failed')
    away.add(ip)
  }

  /** What leaves from it has ended, or takes too long: then the answer to a dot may be lost. */
  async function ended(ip: string): Promise<void> {
    const until = clock.now() + LONGEST_END
    while (options.isBusy(ip) && clock.now() < until) {
      await new Promise<void>((resolve) => void clock.after(LOOK_AGAIN_AFTER, resolve))
    }
    if (options.isBusy(ip)) logger.warn({ ip }, 'an egress IP goes while mail leaves from it')
  }

  return {
    held,
    underWay,
    problems,
    released,
    away,
    begin(ip: string, work: () => Promise<void>): void {
      const done = work().finally(() => underWay.delete(ip))
      underWay.set(ip, done)
    },
    fail,
    async bring(ip: string, source: string): Promise<void> {
      away.delete(ip)
      const problem = await problemOf(ip, source)
      if (problem === null) {
        problems.delete(ip)
        held.add(ip)
        logger.info({ ip }, 'egress IP taken')
      } else {
        if (problems.get(ip)?.text !== problem) logger.error({ ip, reason: problem }, 'egress IP could not be taken')
        fail(ip, problem)
        released.add(ip)
      }
      await options.onChange()
    },
    async leave(ip: string): Promise<void> {
      held.delete(ip)
      await options.onChange()
      await ended(ip)
      await options.onLeaving(ip).catch((thrown: unknown) => {
        logger.warn({ ip, error: errorText(thrown) }, 'what is known of an egress IP was not stored')
      })
      await takeAway(ip)
      released.add(ip)
      logger.info({ ip }, 'egress IP released')
    },
    /** Another node has it: an earlier start of this one, which was killed, may have left the address here. */
    clear: takeAway,
  }
}
