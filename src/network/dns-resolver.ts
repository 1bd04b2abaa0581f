/**
 * DNS questions through Node's resolver, without any cache (network/README.md "Answers of the DNS"). A lookup ends
 * after `timeoutMilliseconds * tries` at the latest, however many servers there are. Each try has a new source port, the
 * /etc/resolv.conf of this second, and no answers kept between questions. Never throws.
 */
import { promises } from 'node:dns'
import { LRUCache } from 'lru-cache'
import { SECOND } from '../base/clock.ts'
import { errorCode } from '../base/errors.ts'
import { bestFirst, MOST_RECORDS, type DnsAnswer, type MxRecord, type Resolver } from './resolver.ts'

interface DnsResolverOptions {
  /** `IP` or `IP:port`; empty: the servers of the system. */
  servers: readonly string[]
  /** For one try. */
  timeoutMilliseconds: number
  tries: number
}

/** Of one question and all that follow from it. */
interface LookupLimits {
  /** By `performance.now()`. */
  endsAt: number
  aliases: number
}

type Ask<Item> = (resolver: promises.Resolver, name: string) => Promise<Item[]>

export function createDnsResolver(options: DnsResolverOptions): Resolver {
  const { timeoutMilliseconds, tries } = options
  const resolvers = createResolvers(timeoutMilliseconds)
  const order = createServerOrder(() => (options.servers.length > 0 ? options.servers : resolvers.systemServers()))

  function look<Item>(type: string, name: string, ask: Ask<Item>): Promise<DnsAnswer<Item>> {
    return lookUntil({ endsAt: performance.now() + timeoutMilliseconds * tries, aliases: 0 }, [type, name], ask)
  }

  async function lookUntil<Item>(
    limits: LookupLimits,
    [type, askedName]: [type: string, name: string],
    ask: Ask<Item>,
  ): Promise<DnsAnswer<Item>> {
    const name = normaliseDnsName(askedName)
    if (!isDnsName(name)) return { kind: 'no-name' }
    let servers = order.serversFor(name)
    let reason = 'there is no server'
    let left = tries
    for (let [server, ...others] = servers; server !== undefined && left > 0; [server, ...others] = servers) {
      const timeout = Math.min(timeoutMilliseconds, limits.endsAt - performance.now())
      if (timeout <= 0) return { kind: 'no-answer', reason: `${type} ${name}: ${SILENCE}` }
      const answer = await askServer(resolvers.lend(server), name, ask, timeout)
      if (answer.kind === 'alias-alone') return followAlias(limits, [type, name], ask)
      if (answer.kind === 'no-name') order.noteDenied(name, server)
      if (answer.kind !== 'failed') return answer
      reason = reasonOf(answer.code)
      servers = others
      if (!isSilence(answer.code)) continue
      left -= 1
      order.noteSilent(server)
      // The question or its answer may have been lost on the way: this server has its turn again.
      servers = [...others, server]
    }
    return { kind: 'no-answer', reason: `${type} ${name}: ${reason}` }
  }

  /** A server with zones of its own alone leaves it to us to go on at the alias' target (RFC 1034 §5.3.3, 4.c). */
  async function followAlias<Item>(
    { endsAt, aliases }: LookupLimits,
    [type, name]: [type: string, name: string],
    ask: Ask<Item>,
  ): Promise<DnsAnswer<Item>> {
    if (aliases === MOST_ALIASES) return { kind: 'no-answer', reason: `${type} ${name}: too many aliases in a row` }
    const limits = { endsAt, aliases: aliases + 1 }
    const alias = await lookUntil(limits, ['CNAME', name], resolveCname)
    const target = alias.kind === 'found' ? alias.records[0] : undefined
    if (target !== undefined) return lookUntil(limits, [type, target], ask)
    return alias.kind === 'found' ? { kind: 'no-record' } : alias
  }

  return {
    mx: (name) => look('MX', name, resolveMx),
    addresses: (name, family) =>
      family === 4
        ? look('A', name, async (resolver, asked) => (await resolver.resolve4(asked)).slice(0, MOST_RECORDS))
        : look('AAAA', name, async (resolver, asked) => (await resolver.resolve6(asked)).slice(0, MOST_RECORDS)),
    txt: (name) => look('TXT', name, resolveTxt),
    cname: (name) => look('CNAME', name, resolveCname),
    ptr: (name) => look('PTR', name, resolvePtr),
  }
}

const resolveCname: Ask<string> = async (resolver, name) => (await resolver.resolveCname(name)).map(normaliseDnsName)
const resolvePtr: Ask<string> = async (resolver, name) =>
  (await resolver.resolvePtr(name)).slice(0, MOST_RECORDS).map(normaliseDnsName)
const resolveTxt: Ask<string> = async (resolver, name) => (await resolver.resolveTxt(name)).map((text) => text.join(''))
const resolveMx: Ask<MxRecord> = async (resolver, name) =>
  bestFirst(
    (await resolver.resolveMx(name)).map(({ priority, exchange }) => ({
      priority,
      exchange: normaliseDnsName(exchange),
    })),
  )

async function askServer<Item>(
  { resolver, giveBack }: LentResolver,
  name: string,
  ask: Ask<Item>,
  timeout: number,
): Promise<ServerAnswer<Item>> {
  // Node looks at the time limit of c-ares once a second at most, and as rarely as the limit is long: too late.
  const giveUp = setTimeout(() => resolver.cancel(), timeout)
  try {
    const records = await ask(resolver, name)
    // c-ares gives no record and no error for an answer that holds an alias and nothing of the type asked for.
    return records.length > 0 ? { kind: 'found', records } : { kind: 'alias-alone' }
  } catch (thrown) {
    const code = errorCode(thrown)
    if (code === promises.NODATA) return { kind: 'no-record' }
    return code === promises.NOTFOUND ? { kind: 'no-name' } : { kind: 'failed', code }
  } finally {
    clearTimeout(giveUp)
    giveBack()
  }
}

interface LentResolver {
  resolver: promises.Resolver
  giveBack: () => void
}

/**
 * To make a resolver costs more than to ask a question with it: each is used again, for one question at a time, since
 * its socket lives until no question of it is open. What it knows of the system is a second old at most.
 */
function createResolvers(timeout: number) {
  let free: promises.Resolver[] = []
  let system: string[] | undefined
  let madeAt = -Infinity
  const refresh = (): void => {
    if (performance.now() - madeAt < KEPT_FOR) return
    free = []
    system = undefined
    madeAt = performance.now()
  }
  return {
    lend(server: string): LentResolver {
      refresh()
      const home = free
      const resolver = home.pop() ?? new promises.Resolver({ timeout, tries: 1 })
      // A server that it had before would get less time than `timeout`: as much as its last answers took.
      resolver.setServers([NO_SERVER])
      resolver.setServers([server])
      return { resolver, giveBack: () => void home.push(resolver) }
    },
    systemServers(): readonly string[] {
      refresh()
      return (system ??= new promises.Resolver().getServers())
    },
  }
}

function createServerOrder(configured: () => readonly string[]) {
  /** With the number of the silence: the latest is asked last. */
  const silentAt = new Map<string, number>()
  let silences = 0
  const deniedBy = new LRUCache<string, string>({ max: MOST_DENIED })
  return {
    serversFor(name: string): string[] {
      const denier = deniedBy.get(name)
      const rank = (server: string): number => (server === denier ? Infinity : (silentAt.get(server) ?? 0))
      return configured().toSorted((left, right) => (rank(left) < rank(right) ? -1 : Number(rank(left) > rank(right))))
    },
    /** It let a try run out: it is asked last from now on. */
    noteSilent: (server: string): void => void silentAt.set(server, ++silences),
    /** It is asked last when this name is asked for again. */
    noteDenied: (name: string, server: string): void => void deniedBy.set(name, server),
  }
}

/** Lower case and without the trailing dot, as names are compared everywhere. */
export function normaliseDnsName(name: string): string {
  return name.endsWith('.') ? name.slice(0, -1).toLowerCase() : name.toLowerCase()
}

const SILENCE = 'no server answered in time'
const KEPT_FOR = SECOND
/** Never asked. */
const NO_SERVER = '127.0.0.1:1'
/** Names whose denial is remembered. */
const MOST_DENIED = 2_000
/** As other resolvers: enough for real chains, an end for loops. */
export const MOST_ALIASES = 8
/** RFC 1035 §2.3.4. */
const MOST_NAME_CHARACTERS = 253

/**
 * Letters, digits, hyphens and underscores (which names of TXT records have). Anything else is not asked: Node would
 * turn some of it into another name, and an empty one into the root.
 */
export function isDnsName(name: string): boolean {
  // One label of 1 to 63 allowed characters, then more of them, each after a dot.
  return name.length <= MOST_NAME_CHARACTERS && /^[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*$/.test(name)
}

/** What one server said; `failed` with the code of c-ares is all that is no usable answer. */
type ServerAnswer<Item> =
  Exclude<DnsAnswer<Item>, { kind: 'no-answer' }> | { kind: 'alias-alone' } | { kind: 'failed'; code: string }

function isSilence(code: string): boolean {
  return code === promises.TIMEOUT || code === promises.CANCELLED
}

function reasonOf(code: string): string {
  if (isSilence(code)) return SILENCE
  if (code === promises.CONNREFUSED) return 'no server could be reached'
  if (code === promises.SERVFAIL) return 'SERVFAIL'
  if (code === promises.REFUSED) return 'REFUSED'
  return code === '' ? 'unknown failure' : code
}
