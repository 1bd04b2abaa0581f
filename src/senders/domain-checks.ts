/**
 * When sending domains are checked: by a verify call, in the background after a change, and when their time has come
 * (senders/README.md "Checks of a domain").
 *
 * A verify call within 10 s of the last one for the domain gets that result. A background check that fails is logged;
 * one that was due stays due. Errors of the store are passed on to a verify call.
 */
import { SECOND } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { DomainRecord } from '../store/records/sender-records.ts'
import type { CheckDomain } from './domain-check.ts'
import type { DomainParts } from './domain-parts.ts'

interface DomainChecks {
  /** Null: it is gone. */
  verify(domain: DomainRecord): Promise<{ checked: DomainRecord | null; isRepeated: boolean }>
  /** In the background. */
  start(domain: DomainRecord): void
  /** The domain has changed: what a verify call said of it no longer holds. */
  forget(name: string): void
  /** Checks every domain whose time has come, a few side by side; ends with the last of them. */
  runDue(): Promise<void>
  /** Starts no check any more and waits for those that `start` began. */
  stop(): Promise<void>
}

const VERIFY_AGAIN_AFTER = 10 * SECOND
const SIDE_BY_SIDE = 8
/** In one run; what is left is due in the next minute still. */
const MOST_IN_ONE_RUN = 400

export function createDomainChecks({ store, clock, logger }: DomainParts, check: CheckDomain): DomainChecks {
  const lastCalls = new Map<string, { at: number; result: Promise<DomainRecord | null> }>()
  const background = new Set<Promise<void>>()
  let isStopped = false

  function forgetOldCalls(): void {
    const now = clock.now()
    for (const [name, { at }] of lastCalls) if (now - at >= VERIFY_AGAIN_AFTER) lastCalls.delete(name)
  }

  /** Never rejects. */
  async function logged(name: string, work: () => Promise<unknown>): Promise<void> {
    try {
      await work()
    } catch (thrown) {
      logger.error({ domain: name, error: errorText(thrown) }, 'domain check failed')
    }
  }

  async function checkIfDue(name: string): Promise<void> {
    forgetOldCalls()
    // A verify call asks now, or has just done so: overtaken by this check it would answer with an older result.
    if (lastCalls.has(name)) return
    const domain = await store.findDomain(name)
    if (domain !== null) await check(domain)
  }

  async function workOff(names: string[]): Promise<void> {
    for (let name = names.shift(); name !== undefined && !isStopped; name = names.shift()) {
      const due = name
      await logged(due, () => checkIfDue(due))
    }
  }

  return {
    async verify(domain) {
      forgetOldCalls()
      const last = lastCalls.get(domain.name)
      if (last !== undefined) return { checked: await last.result, isRepeated: true }
      const result = check(domain)
      lastCalls.set(domain.name, { at: clock.now(), result })
      // Only a result is kept: after a failure the next call asks again.
      result.catch(() => lastCalls.delete(domain.name))
      return { checked: await result, isRepeated: false }
    },
    start(domain) {
      const done = logged(domain.name, () => check(domain)).finally(() => background.delete(done))
      background.add(done)
    },
    forget: (name) => void lastCalls.delete(name),
    async runDue() {
      if (isStopped) return
      const names = await store.domainsDueForCheck(clock.now(), MOST_IN_ONE_RUN)
      await Promise.all(Array.from({ length: SIDE_BY_SIDE }, () => workOff(names)))
    },
    async stop() {
      isStopped = true
      await Promise.all(background)
    },
  }
}
