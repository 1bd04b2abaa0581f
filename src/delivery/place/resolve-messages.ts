/**
 * What has to be known of claimed messages before they get a path: the hosts of their recipient domain, and the host
 * name of their envelope sender. A message whose sending domain is gone, or whose domain has another route than it,
 * goes back to the queue. Never rejects: what fails gives the messages back for five minutes, with a warning.
 */
import { LRUCache } from 'lru-cache'
import { MINUTE, SECOND, type Clock } from '../../base/clock.ts'
import { errorCode, errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import type { Configuration } from '../../config/load-configuration.ts'
import type { RouteAssignment } from '../../store/records/queue-records.ts'
import type { ClaimedMessage, GiveBack } from '../../store/records/claim-records.ts'
import type { Store } from '../../store/store.ts'
import type { HostsRoute, KnownRoutes, NoHosts, RecipientRoute } from '../route/route-message.ts'
import type { CaptureRoute } from './path-facts.ts'

export interface ResolvedMessage {
  message: ClaimedMessage
  route: HostsRoute
  returnPath: string
}

export interface ResolveMessagesOptions {
  clock: Clock
  logger: Logger
  recorder: { giveBack(message: ClaimedMessage, how: GiveBack): void }
  store: Pick<Store, 'findReturnPath'>
  configuration: () => Configuration
  routes: Pick<KnownRoutes, 'fresh' | 'find'>
  capture: CaptureRoute
  onDnsAnswer: (answer: NoHosts, messages: ClaimedMessage[]) => void
  onRouteChanged: (assignment: RouteAssignment) => void
}

/** When the sending domain is gone, or something failed. */
const LOOK_AGAIN_AFTER = 5 * MINUTE
/** The store did not answer: it is back as soon as anything can be claimed. */
const ASK_AGAIN_AFTER = 2 * SECOND
const MOST_RETURN_PATHS = 5_000
/** A domain that was removed and added anew may have another one. */
const RETURN_PATH_LIFETIME = SECOND

interface Answers {
  route: RecipientRoute
  /** By sending domain; undefined: it is gone. */
  returnPaths: ReadonlyMap<string, string | undefined>
}

export function createResolveMessages(options: ResolveMessagesOptions) {
  const { store, clock, logger, configuration, recorder, routes, capture } = options
  const returnPaths = new LRUCache<string, string>({ max: MOST_RETURN_PATHS, ttl: RETURN_PATH_LIFETIME })

  /** Messages go back to the queue for a while, and somebody should look why. */
  function giveBack(messages: readonly ClaimedMessage[], reason: string, after = LOOK_AGAIN_AFTER): void {
    logger.warn({ reason, messages: messages.length, message_id: messages[0]?.id }, 'messages cannot be sent now')
    for (const message of messages) recorder.giveBack(message, { nextAt: clock.now() + after })
  }

  async function returnPathOf(domain: string): Promise<string | undefined> {
    const found = await store.findReturnPath(domain)
    if (found === null) return undefined
    returnPaths.set(domain, found)
    return found
  }

  async function ask(messages: readonly ClaimedMessage[], first: ClaimedMessage): Promise<Answers> {
    const { recipientDomain, isCaptured } = first
    const route = isCaptured
      ? capture.routeOf(recipientDomain)
      : (routes.fresh(recipientDomain) ?? (await routes.find(recipientDomain)))
    const known = new Map<string, string | undefined>()
    for (const { domain } of route.kind === 'hosts' ? messages : []) {
      if (!known.has(domain)) known.set(domain, returnPaths.get(domain) ?? (await returnPathOf(domain)))
    }
    return { route, returnPaths: known }
  }

  /** Gives back those whose domain has another route by now; returns the others. */
  function withoutMoved(messages: readonly ClaimedMessage[], { provider }: HostsRoute): ClaimedMessage[] {
    const { route, isp } = provider
    const isMoved = (message: ClaimedMessage): boolean => !message.isCaptured && message.route !== route
    const moved = messages.filter(isMoved)
    for (const message of moved) recorder.giveBack(message, { nextAt: clock.now(), route })
    const [first] = moved
    if (first !== undefined) options.onRouteChanged({ domain: first.recipientDomain, route, isp })
    return messages.filter((message) => !isMoved(message))
  }

  /** Of one recipient domain, and either all captured or none. */
  async function resolve(messages: readonly ClaimedMessage[]): Promise<ResolvedMessage[]> {
    const [first] = messages
    if (first === undefined) return []
    let answers: Answers
    try {
      answers = await ask(messages, first)
    } catch (thrown) {
      giveBack(messages, errorText(thrown), errorCode(thrown) === 'unavailable' ? ASK_AGAIN_AFTER : LOOK_AGAIN_AFTER)
      return []
    }
    const { route, returnPaths: known } = answers
    if (route.kind !== 'hosts') {
      options.onDnsAnswer(route, [...messages])
      return []
    }
    return withoutMoved(messages, route).flatMap((message) => {
      // Mail of test keys may come from a domain that this server has no record of: reports come to the server itself.
      const own = message.isCaptured ? configuration().server.domains.targets.return_path : undefined
      const returnPath = known.get(message.domain) ?? own
      if (returnPath !== undefined) return [{ message, route, returnPath }]
      giveBack([message], `the sending domain ${message.domain} is not there`)
      return []
    })
  }

  return { resolve, giveBack }
}
