/**
 * Which waiting messages a verb of `sternpost queue` means: its flags, as the server takes them, and as they are typed.
 */
import type { Command } from 'commander'
import { SECOND } from '../../base/clock.ts'
import { misuse } from '../shared/flag-values.ts'

export interface QueueFilterFlags {
  pool?: string
  provider?: string
  route?: string
  recipientDomain?: string
  domain?: string
  ip?: string
  held?: boolean
  acceptedBefore?: string
  all?: boolean
}

/** What is left out does not restrict. */
export interface QueueFilterBody {
  pool?: string | undefined
  provider?: string | undefined
  route?: string | undefined
  recipient_domain?: string | undefined
  domain?: string | undefined
  ip?: string | undefined
  held?: boolean | undefined
  /** Unix seconds. */
  accepted_before?: number | undefined
}

export function withQueueFilter(verb: Command): Command {
  return verb
    .option('--pool <name>', 'in this pool')
    .option('--provider <isp>', 'to this mailbox provider, as events name it')
    .option('--route <name>', 'on this route, as `sternpost path list` names it')
    .option('--recipient-domain <domain>', 'to addresses of this domain')
    .option('--domain <domain>', 'from addresses of this sending domain')
    .option('--ip <address>', 'last tried from this IP')
    .option('--held', 'only those that are held')
    .option('--accepted-before <time>', 'accepted before this time, e.g. 2026-11-21T03:17:00Z')
    .option('--all', 'all of them; the same as no filter')
}

export function queueFilter(flags: QueueFilterFlags): QueueFilterBody {
  const { pool, provider, route, recipientDomain, domain, ip, held, acceptedBefore } = flags
  const filter = {
    pool,
    provider,
    route,
    recipient_domain: recipientDomain,
    domain,
    ip,
    held,
    accepted_before: acceptedBefore === undefined ? undefined : secondsOf(acceptedBefore),
  }
  const isFilter = Object.values(filter).some((value) => value !== undefined)
  if (flags.all === true && isFilter) throw misuse('--all takes no filter beside it')
  return filter
}

/** Rounded up: what was accepted within the second that is named counts as before it. */
function secondsOf(text: string): number {
  const time = Date.parse(text)
  if (Number.isNaN(time)) throw misuse(`--accepted-before: "${text}" is no time; write 2026-11-21T03:17:00Z`)
  return Math.ceil(time / SECOND)
}

/** As they would be typed, each with a space before it. */
export function filterWords({
  pool,
  provider,
  route,
  recipient_domain: to,
  domain,
  ip,
  held,
  accepted_before: time,
}: QueueFilterBody): string {
  const words = [
    ['--pool', pool],
    ['--provider', provider],
    ['--route', route],
    ['--recipient-domain', to],
    ['--domain', domain],
    ['--ip', ip],
  ].flatMap(([flag, value]) => (value === undefined ? [] : [` ${flag} ${value}`]))
  const before = time === undefined ? '' : ` --accepted-before ${new Date(time * SECOND).toISOString()}`
  return [...words, held === true ? ' --held' : '', before].join('')
}
