/**
 * The first half of the dispatcher: from a queue key to a path. Recipient domains get their routes, due rows are
 * claimed while they can go and there is room for them, and each is placed. The walk over the store's keys is the net
 * below.
 */
import { SECOND } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import { createPollLoop } from '../base/poll-loop.ts'
import { createClaimRound } from './claim/claim-round.ts'
import type { QueueDirectory } from './claim/queue-directory.ts'
import { createQueueWalk } from './claim/queue-walk.ts'
import type { DispatcherParts, RowEvents, WakeUps } from './dispatcher-parts.ts'
import { createMessagePlacer } from './place/place-messages.ts'
import { createRouteDomains } from './route/route-domains.ts'
import type { Sending } from './sending.ts'

export type Claiming = ReturnType<typeof createClaiming>

interface ClaimingHooks {
  events: RowEvents
  wake: WakeUps
  mayClaim: () => boolean
  isStopping: () => boolean
  stopping: Promise<void>
}

export function createClaiming(parts: DispatcherParts, { recorder, tries }: Sending, hooks: ClaimingHooks) {
  const { events, wake, mayClaim, isStopping, stopping } = hooks
  const { clock, directory, logger, paths, window } = parts
  const domains = createRouteDomains({
    ...parts,
    mayClaim,
    onAssigned: events.routed,
    async onDnsAnswer(answer, messages) {
      events.unroutedClaimed(messages)
      tries.settleDns(answer, messages)
      await Promise.race([recorder.stored(), stopping])
    },
  })
  const placer = createMessagePlacer({
    ...parts,
    recorder,
    onDnsAnswer: tries.settleDns,
    onRouteChanged: domains.assign,
    onPlaced: events.placed,
    // The room that was kept for these rows is free now, or taken.
    onDone: wake.claims,
  })
  const claims = createClaimRound(parts, placer.placing)
  const walk = createQueueWalk({ ...parts, onPage: wake.claims, onWalked: () => void domains.refill() })
  const onError = (thrown: unknown): void => logger.error({ error: errorText(thrown) }, 'claiming failed')
  const loop = createPollLoop({ clock, round, onError })
  const lookAgain = createLookAgain(directory, () => {
    paths.touchAll()
    wake.paths()
    wake.claims()
  })

  async function round(): Promise<number | null> {
    // A store that recovers, and room that becomes free, wake the loop.
    if (!mayClaim() || window.room() === 0) return null
    directory.advance()
    const asks = claims.asks()
    if (asks.length === 0) {
      walk.look()
      return directory.nextAt()
    }
    const messages = await claims.claim(asks)
    if (isStopping()) for (const message of messages) recorder.giveBack(message, { nextAt: clock.now() })
    else placer.place(messages)
    return clock.now()
  }

  return { domains, placer, loop, walk, lookAgain }
}

/**
 * Opens closed queue keys when paths open: those that wait for just that at once; all others, which know a time, once a
 * second at most, since there may be thousands of them.
 */
function createLookAgain(directory: Pick<QueueDirectory, 'openAll' | 'openTimeless'>, onOpened: () => void) {
  let lookedAt = 0
  let timer: NodeJS.Timeout | undefined

  /** Everything may be different: IPs, configuration, an operator. */
  function everything(): void {
    clearTimeout(timer)
    timer = undefined
    lookedAt = performance.now()
    directory.openAll()
    onOpened()
  }

  return {
    everything,
    /** A path opened by its time, which its keys know already; or sooner, which none does. */
    pathsOpened(): void {
      const wait = lookedAt + SECOND - performance.now()
      if (wait <= 0) return everything()
      directory.openTimeless()
      onOpened()
      timer ??= setTimeout(everything, wait)
    },
    stop: (): void => clearTimeout(timer),
  }
}
