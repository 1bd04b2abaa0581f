/**
 * One simulated world: a story is run on the real engine, and what has to hold of it is watched all the time.
 *
 * The same story gives the same run, to the byte. What does not hold ends the run as a violation; an error of the code
 * under test that nobody caught is one, too.
 */
import { errorCode } from '../../src/base/errors.ts'
import { newIdentifierBytes } from '../../src/base/identifier.ts'
import { createMetrics } from '../../src/base/metrics.ts'
import type { Configuration } from '../../src/config/load-configuration.ts'
import type { MailHosts } from '../../src/network/mail-hosts.ts'
import type { GuardedAnswer } from '../../src/network/guarded-request.ts'
import { randomSource } from '../support/random-source.ts'
import { configurationFor, loadOnce, type LiveLimits } from './configuration.ts'
import { createHappenings } from './happenings.ts'
import { createInvariants, Violation } from './invariants.ts'
import { quietLogger } from './log.ts'
import { startProcess, type Outside, type SimulatedProcess } from './process.ts'
import { createReceivers } from './receivers.ts'
import { startingImage } from './starting-image.ts'
import { createDisk } from './store.ts'
import { faultsEndAt, habitTimes, type Story } from './story.ts'
import { createVirtualTime, type Owner, type VirtualTime } from './virtual-time.ts'

export interface Run {
  violation: Violation | null
  /** Of what happened: equal for equal runs. */
  digest: string
  events: number
  messages: number
  delivered: number
  /** Rows that went back to the queue without an attempt. */
  givenBack: number
}

/** What changes in a world while it runs. */
export interface World {
  time: VirtualTime
  story: Story
  /** Undefined while none runs. */
  process: SimulatedProcess | undefined
  limits: LiveLimits
  configuration(): Configuration
  /** IPs this machine does not have now. */
  lostIps: Set<string>
  /** Hosts of domains that moved. */
  movedDomains: Set<string>
  dns: Map<string, 'no-answer' | 'no-address'>
  endpoint: 200 | 500 | 'silent'
  isDiskFull: boolean
  /** Milliseconds that the store takes for each call beyond its usual time. */
  storeDelay: number
  start(): void
  /** False: there is no process, not even one that is starting. */
  kill(): boolean
}

export interface WorldKit {
  base: Configuration
  image: Buffer
  metrics: ReturnType<typeof createMetrics>
}

let kit: WorldKit | undefined

/** Made once in each process of the simulator. */
export function worldKit(): WorldKit {
  kit ??= { base: loadOnce(), image: startingImage(), metrics: { ...createMetrics(), watchThread: () => {} } }
  return kit
}

/** Between two looks at what has to hold, and whether all is over, in milliseconds. */
const LOOK_EVERY = 2_000

/** In a turn of the event loop of its own: only there a synchronous call may settle promises. */
export function runStory(story: Story): Promise<Run> {
  return new Promise((resolve, reject) => {
    setImmediate(() => {
      try {
        resolve(runNow(story))
      } catch (thrown) {
        reject(thrown)
      }
    })
  })
}

function runNow(story: Story): Run {
  const { base, image, metrics } = worldKit()
  const random = randomSource(story.seed ^ 0x5bd1e995)
  const time = createVirtualTime(random)
  const restore = time.install()
  const rejections: unknown[] = []
  const onRejection = (reason: unknown): void => void rejections.push(reason)
  process.on('unhandledRejection', onRejection)
  freshIdentifiers(time)
  const disk = createDisk(image, () => time.spend(random.next() * story.settings.commitTime))
  let violation: Violation | null = null
  const fail = (found: Violation): void => {
    violation ??= found
  }
  const invariants = createInvariants({ story, time, disk, fail })
  try {
    const outsideOwner = time.owner('outside')
    const receivers = createReceivers({
      habits: habitTimes(story),
      random,
      now: time.now,
      onRecipient: invariants.noteRecipient,
      onTaken: invariants.noteTaken,
      onConnection: invariants.noteConnection,
    })
    const { threadDelay } = story.settings
    const someDelay = (): number => random.next() * threadDelay
    let processes = 0
    const world: World = {
      time,
      story,
      process: undefined,
      limits: { rateShare: 1, connections: story.settings.connections },
      configuration: () => configurationFor(base, story.settings, world.limits),
      lostIps: new Set(),
      movedDomains: new Set(),
      dns: new Map(),
      endpoint: 200,
      isDiskFull: false,
      storeDelay: 0,
      start: () => start(time.owner(`process ${++processes}`)),
      kill() {
        if (current === undefined || current.isDead) return false
        current.isDead = true
        world.process = undefined
        return true
      },
    }
    let current: Owner | undefined
    const outside: Outside = {
      time,
      disk,
      metrics,
      receivers,
      mailHosts: { find: (domain) => later(random.next() * 20, () => hostsOf(domain, world)) },
      guardedRequest: { post: ({ headers }) => answerHook(headers['X-Service-Event-Id'] ?? '') },
      hasAddress: (ip) => !world.lostIps.has(ip),
      threadDelay: someDelay,
      turnTime: story.settings.turnTime,
      storeDelay: () => someDelay() + world.storeDelay * random.next(),
      mayDeliver: () => !world.isDiskFull,
      logger: quietLogger(invariants.noteLog),
      onFatal() {
        world.kill()
        time.plan(1_000, outsideOwner, world.start)
      },
      onPost: invariants.notePost,
      onCall: invariants.noteCall,
    }
    const answerHook = async (eventId: string): Promise<GuardedAnswer> => {
      const { endpoint } = world
      await later(endpoint === 'silent' ? 10_000 : random.next() * 50, () => {})
      if (endpoint === 'silent') return { kind: 'failed', reason: 'no answer in time' }
      if (endpoint === 200) invariants.notePosted(eventId)
      return { kind: 'answered', status: endpoint, answer: '' }
    }
    function start(owner: Owner): void {
      current = owner
      time.plan(0, owner, () => {
        startProcess(owner, world.configuration(), outside).then(
          (started) => {
            world.process = started
          },
          (thrown: unknown) => {
            // It could not open what it needs: the service manager starts it again.
            if (errorCode(thrown) !== 'SQLITE_FULL') fail(new Violation('start', String(thrown)))
            owner.isDead = true
            time.plan(1_000, outsideOwner, world.start)
          },
        )
      })
    }
    const happenings = createHappenings(world, { disk, random, owner: outsideOwner, invariants })
    world.start()
    for (const item of story.items) time.plan(item.at, outsideOwner, () => happenings.happen(item.happening))
    const calmAt = faultsEndAt(story)
    const endsAt = calmAt + invariants.longestWait(world)
    let isDone = false
    const look = (): void => {
      if (rejections.length > 0) fail(new Violation('rejection', String(rejections[0])))
      invariants.look(world.process)
      isDone = time.now() >= calmAt && invariants.isAllOver(world.process)
      if (!isDone) time.plan(LOOK_EVERY, outsideOwner, look)
    }
    time.plan(LOOK_EVERY, outsideOwner, look)
    try {
      time.runUntil(endsAt, () => isDone || violation !== null)
      if (violation === null && world.process === undefined) fail(new Violation('start', 'no process runs at the end'))
      if (violation === null) invariants.judge(world.process)
    } catch (thrown) {
      fail(thrown instanceof Violation ? thrown : new Violation('error', errorOf(thrown)))
    }
    return { violation, digest: invariants.digest(), events: time.events(), ...invariants.counts() }
  } finally {
    restore()
    process.off('unhandledRejection', onRejection)
    disk.database.close()
  }
}

/** Identifiers are made from random bytes that were drawn in advance, for the world before this one. */
function freshIdentifiers({ draws }: VirtualTime): void {
  const before = draws()
  while (draws() === before) newIdentifierBytes(0)
}

function errorOf(thrown: unknown): string {
  return thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown)
}

function later<Value>(milliseconds: number, look: () => Value): Promise<Value> {
  return new Promise((resolve) => void setTimeout(() => resolve(look()), milliseconds))
}

/** The first two domains share their hosts. */
const SHARED_HOSTS = new Set(['north.test', 'east.test'])

function hostsOf(domain: string, { dns, movedDomains }: World): MailHosts {
  const answer = dns.get(domain)
  if (answer === 'no-answer') return { kind: 'no-answer', reason: 'SERVFAIL' }
  if (answer === 'no-address') return { kind: 'no-address' }
  const first = SHARED_HOSTS.has(domain) ? 'mx.north.test' : `mx.${domain}`
  const name = movedDomains.has(domain) ? `mx.moved-${domain}` : first
  const host = { name, addresses: ['127.0.0.2'], canonicalName: name, isSecure: false, failure: null }
  return { kind: 'hosts', hosts: [host], mxNames: [name], isSecure: false }
}
