/**
 * Where TLS failed when nobody demanded it: the one plain fallback, remembered for (egress IP, host), so that not every
 * connection is made twice (delivery/README.md "TLS"; `delivery.remember_plain`). A success drops it, and any policy
 * that demands TLS. A memory that cannot be stored or loaded costs a second connection at most, and a line in the log.
 * Bounded; the longest unused is forgotten first.
 */
import type { Clock } from '../../../base/clock.ts'
import type { Logger } from '../../../base/logger.ts'
import { recentEntries } from '../../../base/recent-entries.ts'
import type { Configuration } from '../../../config/load-configuration.ts'
import type { Store } from '../../../store/store.ts'
import type { PlainMemory } from '../../../store/records/tls-records.ts'
import type { MailHost } from '../../protocol/try-result.ts'

interface TlsMemoryOptions {
  store: Pick<Store, 'plainMemories' | 'keepPlainMemories' | 'forgetPlainMemory'>
  clock: Clock
  settings: () => Configuration
  logger: Logger
}

export type TlsMemory = ReturnType<typeof createTlsMemory>

const MOST_REMEMBERED = 100_000
const MOST_REASON_CHARACTERS = 300

export function createTlsMemory({ store, clock, settings, logger }: TlsMemoryOptions) {
  const memories = recentEntries<string, PlainMemory>(MOST_REMEMBERED)
  const keyOf = (ip: string, host: string): string => `${ip} ${host}`
  const complain = (thrown: unknown): void => logger.warn({ err: thrown }, 'plain fallback not stored')

  function forget(ip: string, host: string): void {
    if (memories.delete(keyOf(ip, host))) store.forgetPlainMemory(ip, host).catch(complain)
  }

  return {
    async start(): Promise<void> {
      for (const memory of await store.plainMemories(clock.now())) memories.set(keyOf(memory.ip, memory.host), memory)
    },
    /** The same hosts, with no TLS towards those where it failed from this IP. */
    apply(ip: string, hosts: readonly MailHost[]): MailHost[] {
      return hosts.map((host) => {
        const memory = memories.get(keyOf(ip, host.name))
        if (memory === undefined) return host
        if (host.tls.kind === 'opportunistic' && clock.now() < memory.until) {
          return { ...host, tls: { kind: 'plain', policy: host.tls.policy, reason: memory.reason } }
        }
        forget(ip, host.name)
        return host
      })
    },
    remember(ip: string, host: string, reason: string): void {
      const lifetime = settings().server.delivery.remember_plain
      if (lifetime === 0) return
      const memory = { ip, host, until: clock.now() + lifetime, reason: reason.slice(0, MOST_REASON_CHARACTERS) }
      memories.set(keyOf(ip, host), memory)
      store.keepPlainMemories([memory]).catch(complain)
      logger.info({ ip, host, reason: memory.reason, until: memory.until }, 'plain fallback remembered')
    },
    forget,
  }
}
