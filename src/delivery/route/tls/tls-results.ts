/**
 * What connections said about TLS: summed, and handed to the store every ten seconds (delivery/README.md "TLS
 * reports"), some at a time, so that no acceptance waits for thousands of them. Each connection counts once, for the
 * recipient domain it was opened for. What cannot be stored stays in the sums and is tried again. And the memory of
 * plain fallbacks, which they feed.
 */
import { SECOND, type Clock } from '../../../base/clock.ts'
import type { Logger } from '../../../base/logger.ts'
import { recentEntries } from '../../../base/recent-entries.ts'
import { utcDay } from '../../../base/utc-day.ts'
import type { Configuration } from '../../../config/load-configuration.ts'
import type { PlainMemory, TlsResult } from '../../../store/records/tls-records.ts'
import type { Store } from '../../../store/store.ts'
import type { TlsPolicy } from '../../protocol/host-tls.ts'
import type { MailHost, ThreadConnectionNote } from '../../protocol/try-result.ts'
import type { TlsPolicies } from './tls-policy.ts'

interface TlsResultsOptions {
  store: Pick<Store, 'addTlsResults'>
  policies: Pick<TlsPolicies, 'describe'>
  memory: Pick<TlsMemory, 'remember' | 'forget'>
  clock: Clock
  logger: Logger
}

/** A failure for which no connection was made. */
export interface TlsProblem {
  domain: string
  /** '' where no host is to blame. */
  host: string
  policy: TlsPolicy
  /** A result type of RFC 8460 §4.3. */
  result: string
}

export type TlsResults = ReturnType<typeof createTlsResults>

const FLUSH_AFTER = 10 * SECOND
/** While the store takes nothing, further kinds of results are not summed. */
const MOST_SUMS = 50_000
/** Of one call of the store, which takes about 12 µs for each. */
const STORED_AT_ONCE = 200
const MOST_REMEMBERED = 100_000
const MOST_REASON_CHARACTERS = 300
const POLICY_TYPES = { dane: 'tlsa', sts: 'sts', required: 'no-policy-found', none: 'no-policy-found' } as const

export function createTlsResults({ store, policies, memory, clock, logger }: TlsResultsOptions) {
  let sums = new Map<string, TlsResult>()
  let cancelTimer: (() => void) | undefined
  let flushing: Promise<void> = Promise.resolve()

  function add(result: TlsResult): void {
    const { day, domain, policyType, policy, host, ip } = result
    const key = JSON.stringify([day, domain, policyType, policy, host, ip, result.result])
    const sum = sums.get(key)
    if (sum !== undefined) sum.count += result.count
    else if (sums.size < MOST_SUMS) sums.set(key, result)
    cancelTimer ??= clock.after(FLUSH_AFTER, () => void flush())
  }

  /** The last flush failed. */
  let isLate = false

  function note(ip: string, { domain, host, policy, result }: TlsProblem): void {
    const { lines, isListed } = policies.describe(domain, host, policy)
    // In testing, mail goes to a host that the policy does not name; `enforce` would not have sent it there.
    const seen = !isListed && host !== '' && result === 'success' ? 'validation-failure' : result
    const policyType = POLICY_TYPES[policy.type]
    add({ day: utcDay(clock.now()), domain, policyType, policy: lines, host, ip, result: seen, count: 1 })
  }

  function flush(): Promise<void> {
    cancelTimer?.()
    cancelTimer = undefined
    flushing = flushing.then(storeSums)
    return flushing
  }

  async function storeSums(): Promise<void> {
    const taken = [...sums.values()]
    if (taken.length === 0) return
    sums = new Map()
    while (taken.length > 0) {
      const some = taken.splice(0, STORED_AT_ONCE)
      try {
        await store.addTlsResults(some)
      } catch (thrown) {
        const left = [...some, ...taken]
        // Once: while a database is away, each flush fails.
        if (!isLate) logger.warn({ err: thrown, results: left.length }, 'TLS results not stored')
        isLate = true
        for (const result of left) add(result)
        return
      }
    }
    if (isLate) logger.info('TLS results are stored again')
    isLate = false
  }

  return {
    /** `ip`: the egress IP of the path. */
    noteConnection(ip: string, { domain, host, tls }: ThreadConnectionNote): void {
      if (tls === null || host === null) return
      if (tls.isPlainFallback) memory.remember(ip, host, tls.reason ?? tls.result)
      else if (tls.result === 'success') memory.forget(ip, host)
      note(ip, { domain, host, policy: tls.policy, result: tls.result })
    },
    noteProblem: (problem: TlsProblem) => note('', problem),
    /** Stores what is summed up; never rejects. */
    flush,
    /** The last flush; nothing is noted afterwards. */
    async stop(): Promise<void> {
      await flush()
      cancelTimer?.()
    },
  }
}

interface TlsMemoryOptions {
  store: Pick<Store, 'plainMemories' | 'keepPlainMemories' | 'forgetPlainMemory'>
  clock: Clock
  settings: () => Configuration
  logger: Logger
}

export type TlsMemory = ReturnType<typeof createTlsMemory>

/**
 * Where TLS failed when nobody demanded it: the one plain fallback, remembered for (egress IP, host), so that not every
 * connection is made twice (delivery/README.md "TLS"; `delivery.remember_plain`). A success drops it, any policy
 * that demands TLS, and a host that refuses plain text. A memory that cannot be stored or loaded costs a second
 * connection at most, and a line in the log. Bounded; the longest unused is forgotten first.
 */
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
