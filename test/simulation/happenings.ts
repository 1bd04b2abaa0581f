/**
 * Makes the things of a story happen: mail, faults, and what operators and customers do.
 */
import { newIdentifier } from '../../src/base/identifier.ts'
import type { RandomSource } from '../support/random-source.ts'
import { plainContent } from '../delivery/start-engine.ts'
import { IPS, PROVIDER } from './configuration.ts'
import type { Invariants } from './invariants.ts'
import type { SimulatedProcess } from './process.ts'
import type { SimulatedDisk } from './store.ts'
import type { Happening, Mail } from './story.ts'
import type { Owner } from './virtual-time.ts'
import type { World } from './world.ts'

export interface HappeningsOptions {
  disk: SimulatedDisk
  random: RandomSource
  /** What belongs to no process. */
  owner: Owner
  invariants: Pick<Invariants, 'noteAccepted'>
}

export interface Happenings {
  happen(happening: Happening): void
}

/** A client that found nobody comes again. */
const COMES_AGAIN = 500
const ACTOR = 'simulator'

export function createHappenings(world: World, { disk, random, owner, invariants }: HappeningsOptions): Happenings {
  const { time } = world
  const ids: string[] = []
  let recipients = 0

  /** In the main thread of the process that runs; when there is none, later. */
  function inProcess(act: (process: SimulatedProcess) => Promise<unknown>): void {
    const { process } = world
    if (process === undefined) return void time.plan(COMES_AGAIN, owner, () => inProcess(act))
    // What a process refuses is said to its caller.
    time.plan(0, process.main, () => void act(process).catch(() => {}))
  }

  /** The same, until it succeeds; then what follows. A process that dies over it leaves it to the next one. */
  function insist(act: (process: SimulatedProcess) => Promise<unknown>, follow: () => void = () => {}): void {
    const { process } = world
    let answer: 'none' | 'refused' | 'done' = process === undefined ? 'refused' : 'none'
    if (process !== undefined) {
      time.plan(
        0,
        process.main,
        () =>
          void act(process).then(
            () => {
              answer = 'done'
            },
            () => {
              answer = 'refused'
            },
          ),
      )
    }
    const look = (): void => {
      if (answer === 'done') follow()
      else if (answer === 'refused' || world.process !== process) insist(act, follow)
      // Whoever asks twice may be heard twice, the second time after it was undone.
      else time.plan(COMES_AGAIN, owner, look)
    }
    time.plan(COMES_AGAIN, owner, look)
  }

  /** One operator, who undoes it after that time. */
  function operate(
    duration: number,
    act: (process: SimulatedProcess) => Promise<unknown>,
    undo: (process: SimulatedProcess) => Promise<unknown>,
  ): void {
    insist(act, () => void time.plan(duration, owner, () => insist(undo)))
  }

  function forSomeTime(duration: number, begin: () => void, end: () => void): void {
    begin()
    time.plan(duration, owner, end)
  }

  async function accept({ store, dispatcher, onEvents }: SimulatedProcess, mail: Mail): Promise<void> {
    const { count, domain, sender, stream, lifetime, delay } = mail
    const now = Date.now()
    const messages = Array.from({ length: count }, () => ({
      id: newIdentifier('msg', now),
      to: { name: null, address: `user${++recipients}@${domain}` },
      recipientDomain: domain,
      variables: {},
      expiresAt: now + delay + lifetime,
      isCaptured: false,
    }))
    const answer = await store.acceptMessages({
      now,
      messages,
      domain: sender,
      stream,
      apiKeyId: null,
      isTest: false,
      pool: 'default',
      batch: null,
      sendAt: delay === 0 ? null : now + delay,
      retryOf: null,
      idempotency: null,
      content: plainContent({ from: { name: null, address: `news@${sender}` } }),
    })
    const accepted = messages.map(({ id }) => id)
    invariants.noteAccepted(accepted, mail)
    ids.push(...accepted)
    if (answer.kind === 'accepted') dispatcher.noteQueued(answer.queued)
    onEvents()
  }

  function someIds(share: number): string[] {
    return ids.filter(() => random.next() < share)
  }

  const holding =
    (sender: string, kind: 'hold' | 'release') =>
    async ({ store, dispatcher }: SimulatedProcess): Promise<void> => {
      const { queued } = await store.actOnQueue({
        filter: { domain: sender },
        action: { kind },
        now: Date.now(),
        limit: Number.MAX_SAFE_INTEGER,
        isDryRun: false,
      })
      dispatcher.noteQueued(queued)
    }

  function ipOf(index: number): string {
    return IPS[index % world.story.settings.ips] ?? ''
  }

  function happen(happening: Happening): void {
    switch (happening.what) {
      case 'accept':
        return inProcess((process) => accept(process, happening))
      case 'habit':
        return
      case 'kill':
        if (world.kill()) time.plan(happening.downFor, owner, world.start)
        return
      case 'stop': {
        const { process } = world
        if (process === undefined) return
        world.process = undefined
        time.plan(
          0,
          process.main,
          () =>
            void process
              .stop()
              .catch(() => {})
              .then(() => {
                process.owner.isDead = true
                time.plan(happening.downFor, owner, world.start)
              }),
        )
        return
      }
      case 'thread-death':
        // Of those that were started last.
        return world.process?.workers.at(-1 - random.integer(world.story.settings.threads))?.die()
      case 'jump':
        return time.jump(happening.milliseconds)
      case 'disk-full':
        return forSomeTime(
          happening.duration,
          () => {
            world.isDiskFull = true
            disk.setFull(true)
          },
          () => {
            disk.setFull(false)
            world.isDiskFull = false
            insist(async ({ dispatcher }) => dispatcher.resume())
          },
        )
      case 'slow-store':
        return forSomeTime(
          happening.duration,
          () => {
            world.storeDelay = happening.milliseconds
          },
          () => {
            world.storeDelay = 0
          },
        )
      case 'reload': {
        const { rateShare, connections } = happening
        world.limits = { rateShare, connections }
        return insist(({ live }) => live.replace(world.configuration()))
      }
      case 'hold':
        return operate(happening.duration, holding(happening.sender, 'hold'), holding(happening.sender, 'release'))
      case 'suspend-ip': {
        const ip = ipOf(happening.ip)
        return operate(
          happening.duration,
          ({ warmup }) => warmup.suspendIp(ip, null, ACTOR),
          ({ warmup }) => warmup.resumeIp(ip, ACTOR),
        )
      }
      case 'suspend-provider': {
        const ip = ipOf(happening.ip)
        const request = { ip, provider: PROVIDER, reason: null, actor: ACTOR }
        return operate(
          happening.duration,
          ({ shaping }) => shaping.suspend(request),
          ({ shaping }) => shaping.resume({ ip, provider: PROVIDER }),
        )
      }
      case 'lose-address': {
        const ip = ipOf(happening.ip)
        return forSomeTime(
          happening.duration,
          () => world.lostIps.add(ip),
          () => world.lostIps.delete(ip),
        )
      }
      case 'move-hosts':
        return void world.movedDomains.add(happening.domain)
      case 'dns': {
        const { domain, answer } = happening
        return forSomeTime(
          happening.duration,
          () => world.dns.set(domain, answer),
          () => world.dns.delete(domain),
        )
      }
      case 'cancel':
        return inProcess(async ({ store, onEvents }) => {
          await Promise.all(someIds(happening.share).map((id) => store.cancelMessage(id, Date.now())))
          onEvents()
        })
      case 'retry-now':
        return inProcess(({ store, dispatcher }) =>
          Promise.all(
            someIds(happening.share).map(async (id) => {
              const queued = await store.retryNow(id, Date.now())
              if (queued !== null) dispatcher.noteQueued(queued)
            }),
          ),
        )
      case 'endpoint':
        return forSomeTime(
          happening.duration,
          () => {
            world.endpoint = happening.answer
          },
          () => {
            world.endpoint = 200
          },
        )
    }
  }

  return { happen }
}
