/**
 * Which waiting messages a verb of `posthorn queue` means: its flags, as the server takes them, and as they are typed.
 */
import type { Command } from 'commander'

export interface QueueFilterFlags {
  pool?: string
  provider?: string
  route?: string
  recipientDomain?: string
  domain?: string
  ip?: string
  held?: boolean
}

/** What is left out does not restrict. */
export interface QueueFilter {
  pool?: string | undefined
  provider?: string | undefined
  route?: string | undefined
  recipient_domain?: string | undefined
  domain?: string | undefined
  ip?: string | undefined
  held?: boolean | undefined
}

export function withQueueFilter(verb: Command): Command {
  return verb
    .option('--pool <name>', 'in this pool')
    .option('--provider <isp>', 'to this mailbox provider, as events name it')
    .option('--route <name>', 'on this route, as `posthorn path list` names it')
    .option('--recipient-domain <domain>', 'to addresses of this domain')
    .option('--domain <domain>', 'from addresses of this sending domain')
    .option('--ip <address>', 'last tried from this IP')
    .option('--held', 'only those that are held')
}

export function queueFilter(flags: QueueFilterFlags): QueueFilter {
  const { pool, provider, route, recipientDomain, domain, ip, held } = flags
  return { pool, provider, route, recipient_domain: recipientDomain, domain, ip, held }
}

/** As they would be typed, each with a space before it. */
export function filterWords({ pool, provider, route, recipient_domain: to, domain, ip, held }: QueueFilter): string {
  const words = [
    ['--pool', pool], ['--provider', provider], ['--route', route], ['--recipient-domain', to], ['--domain', domain],
    ['--ip', ip],
  ].flatMap(([flag, value]) => (value === undefined ? [] : [` ${flag} ${value}`]))
  return [...words, held === true ? ' --held' : ''].join('')
}
