/**
 * What is remembered of where mail goes: the route of a recipient domain, for about as long as its DNS answer holds,
 * and what stands behind the name of a route, which is all that a queue key has. A route that nothing was sent to since
 * the start is guessed from its name. Concurrent questions for one domain share one lookup. `find` rejects as the
 * lookup does.
 */
import { MINUTE, type Clock } from '../../base/clock.ts'
import { recentEntries } from '../../base/recent-entries.ts'
import type { Configuration } from '../../config/load-configuration.ts'
import type { MailboxProvider } from '../../egress/shaping/mailbox-provider.ts'
import type { FindRoute, HostsRoute, RecipientRoute } from './route-message.ts'

export type KnownRoutes = ReturnType<typeof createKnownRoutes>

type KnownRoutesOptions = { findRoute: FindRoute; configuration: () => Configuration; clock: Clock }

/** How late a change of the DNS is seen, beyond the time for which its answers are cached. */
const FRESH_FOR = MINUTE
const MOST_DOMAINS = 20_000
const MOST_ROUTES = 20_000

export function createKnownRoutes({ findRoute, configuration, clock }: KnownRoutesOptions) {
  const domains = recentEntries<string, { route: HostsRoute; at: number }>(MOST_DOMAINS)
  const providers = recentEntries<string, MailboxProvider>(MOST_ROUTES)
  const underWay = new Map<string, Promise<RecipientRoute>>()

  async function ask(recipientDomain: string): Promise<RecipientRoute> {
    const found = await findRoute(recipientDomain)
    if (found.kind === 'hosts') {
      domains.set(recipientDomain, { route: found, at: clock.now() })
      providers.set(found.provider.route, found.provider)
    }
    return found
  }

  /** A provider's id may stand alone, or before the hyphen that a site's name has. */
  function guess(routeName: string): MailboxProvider {
    const { default: limits, providers: blocks } = configuration().providers
    const id = routeName.split('-')[0] ?? ''
    const block = Object.hasOwn(blocks, id) ? blocks[id] : undefined
    if (block === undefined) return { provider: null, isp: routeName, limits, route: routeName }
    return { provider: id, isp: block.isp, limits: block, route: routeName }
  }

  return {
    /** The route of the domain when it was looked up lately; undefined: `find` has to ask. */
    fresh(recipientDomain: string): HostsRoute | undefined {
      const known = domains.get(recipientDomain)
      const age = clock.now() - (known?.at ?? 0)
      return known !== undefined && age >= 0 && age < FRESH_FOR ? known.route : undefined
    },
    find(recipientDomain: string): Promise<RecipientRoute> {
      const running = underWay.get(recipientDomain)
      if (running !== undefined) return running
      const asking = ask(recipientDomain).finally(() => underWay.delete(recipientDomain))
      underWay.set(recipientDomain, asking)
      return asking
    },
    /** As it was when it was last looked up, however long ago. */
    last: (recipientDomain: string) => domains.peek(recipientDomain)?.route,
    behind(routeName: string): MailboxProvider {
      const known = providers.get(routeName)
      if (known !== undefined) return known
      const guessed = guess(routeName)
      providers.set(routeName, guessed)
      return guessed
    },
    /** Limits have changed: nothing is known any more. */
    forget(): void {
      domains.clear()
      providers.clear()
    },
  }
}
