/**
 * Hosts of a path for which flights went wrong: their messages go one after the other for a day (delivery/README.md
 * "Flights"). Pure; times are Unix milliseconds.
 */
import { DAY } from '../../base/clock.ts'

export interface CarefulHost {
  host: string
  reason: string
  since: number
  until: number
}

const REMEMBERED_FOR = DAY
/** Of one path; the oldest is forgotten. */
const MOST_HOSTS = 20
const MOST_REASON_CHARACTERS = 300
const NONE: readonly string[] = []

/** The same hosts with this one; null: it is there already. */
export function withCarefulHost(
  hosts: readonly CarefulHost[],
  { host, reason, now }: { host: string; reason: string; now: number },
): CarefulHost[] | null {
  const known = hosts.filter(({ until }) => until > now)
  if (known.some((each) => each.host === host)) return null
  const added = { host, reason: reason.slice(0, MOST_REASON_CHARACTERS), since: now, until: now + REMEMBERED_FOR }
  return [...known, added].slice(-MOST_HOSTS)
}

export function carefulNames(hosts: readonly CarefulHost[] | undefined, now: number): readonly string[] {
  if (hosts === undefined || hosts.length === 0) return NONE
  return hosts.filter(({ until }) => until > now).map(({ host }) => host)
}
