/**
 * Recipient domains and their routes: what is not known yet, and what was found out.
 *
 * A domain's waiting rows move in parts, so that a million of them holds nobody up.
 */
import type { Database } from '../../engine/database.ts'
import type { Stream } from '../../../mail/message.ts'
import type { RouteAssignment } from '../../records/queue-records.ts'
import { createQueueNames, createQueuedTally } from './queue-names.ts'
import { ask } from '../tools/statements.ts'
import type { Verb } from '../tools/verb-types.ts'

/** Rows that one call moves: about 5 ms. */
const MOST_MOVED = 250
/** Steps of one walk over what has no route: about 6 ms. */
const MOST_STEPS = 2_000

export function createAssignRoutes(database: Database) {
  const learn = createRouteMemory(database)
  const findRows = database.prepare<
    [string, number],
    { key: number; nextAt: number; isRetry: number; pool: string; domain: string; stream: Stream }
  >(`
    select
      messages.seq as key, messages.next_at as nextAt, messages.is_retry as isRetry, pools.name as pool, lanes.domain,
      lanes.stream
    from messages
    cross join pools on pools.pool_id = messages.pool_id
    cross join lanes on lanes.lane_id = messages.lane_id
    where messages.state = 'waiting' and messages.route_id < 1 and messages.recipient_domain = +?
    order by messages.next_at
    limit +?`)
  const move = database.prepare<[number, number]>('update messages set route_id = ? where seq = ?')

  return (assignments: readonly RouteAssignment[]) => {
    const tally = createQueuedTally()
    /** Assignments that have rows left to move. */
    const rest: RouteAssignment[] = []
    let room = MOST_MOVED
    for (const assignment of assignments) {
      const routeId = learn(assignment)
      const rows = findRows.all(assignment.domain, room)
      for (const { key, nextAt, isRetry, pool, domain, stream } of rows) {
        move.run(routeId, key)
        const { route } = assignment
        tally.add({ pool, route, domain, stream, isRetry: isRetry === 1 }, assignment.domain, nextAt)
      }
      // Without room nobody looked: it comes again.
      if (rows.length === room) rest.push(assignment)
      room -= rows.length
    }
    return { queued: tally.result(), rest }
  }
}

/** Keeps what was found out about a domain; returns the number of its route. */
function createRouteMemory(database: Database): (assignment: RouteAssignment) => number {
  const names = createQueueNames(database)
  const setIsp = database.prepare<[string, number, string]>(`
    update routes set isp = ? where route_id = ? and isp is distinct from ?`)
  const keep = database.prepare<[string, number]>(`
    insert into domain_routes (domain, route_id)
    values (?, ?)
    on conflict (domain) do update set route_id = excluded.route_id where domain_routes.route_id <> excluded.route_id`)
  return ({ domain, route, isp }) => {
    const routeId = names.routeId(route)
    setIsp.run(isp, routeId, isp)
    keep.run(domain, routeId)
    return routeId
  }
}

/** Where mail to a recipient domain is queued at once; undefined: nobody has looked yet. */
export interface KnownRoute {
  routeId: number
  route: string
}

/** What is returned looks at the answer; undefined: it was not looked up yet. */
export function createAskDomainRoute(database: Database): (domain: string) => () => KnownRoute | undefined {
  const find = database.prepare<[string], KnownRoute>(`
    select routes.route_id as routeId, routes.name as route
    from domain_routes
    cross join routes on routes.route_id = domain_routes.route_id
    where domain_routes.domain = +?`)
  return (domain) => {
    const rows = ask(find, domain)
    return () => rows()[0]
  }
}

/**
 * A walk in the order of due times that leaps from one (time, domain) to the next by a seek: the rows of a batch, which
 * are due together, cost one step for each domain. What more steps would find is found when these have moved.
 */
export function createUnroutedDomains(database: Database): Verb<'unroutedDomains'> {
  const findNext = database.prepare<[number, string], { domain: string; earliestAt: number }>(`
    select recipient_domain as domain, next_at as earliestAt
    from messages
    where state = 'waiting' and route_id < 1 and (next_at, recipient_domain) > (?, ?)
    order by next_at, recipient_domain
    limit 1`)
  return (limit) => {
    const found = new Map<string, number>()
    let last = findNext.get(Number.MIN_SAFE_INTEGER, '')
    for (let step = 0; step < MOST_STEPS && last !== undefined && found.size < limit; step++) {
      if (!found.has(last.domain)) found.set(last.domain, last.earliestAt)
      last = findNext.get(last.earliestAt, last.domain)
    }
    return [...found].map(([domain, earliestAt]) => ({ domain, earliestAt }))
  }
}
