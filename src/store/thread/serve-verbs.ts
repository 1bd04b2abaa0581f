/**
 * Answers the verbs that come over a port, with their arguments as a list, until one of them says to close; returns
 * their names. Writing verbs share commits; reading ones see what was committed and are answered at once. A damaged
 * database ends the thread, and the process with it.
 */
import type { MessagePort } from 'node:worker_threads'
import { answerThreadChannel, type IncomingCall } from '../../base/threads/thread-channel.ts'
import type { OpenEngine } from '../engine/open-engine.ts'
import type { StoreLocation } from '../store-location.ts'
import { createGroupCommit, type PendingVerb } from './group-commit.ts'
import { CLOSE_CALL } from './thread-messages.ts'
import { createReadVerbs, createWriteVerbs, freeContent, weigh } from '../verbs/verbs.ts'

interface AnyVerb {
  (...input: unknown[]): unknown
  together?: (requests: readonly unknown[]) => unknown[]
}

export function serveVerbs(
  engine: OpenEngine,
  verbs: MessagePort,
  location: Pick<StoreLocation, 'commitLingerMilliseconds' | 'commitMostRows'>,
): string[] {
  const writes = new Map(Object.entries(createWriteVerbs(engine))) as ReadonlyMap<string, AnyVerb>
  const reads = new Map(Object.entries(createReadVerbs(engine))) as ReadonlyMap<string, AnyVerb>
  const reject = createRejecting(engine.isDamage)
  const groups = createGroupCommit({
    database: engine.writer,
    lingerMilliseconds: location.commitLingerMilliseconds,
    mostRows: location.commitMostRows,
    mostWorkMilliseconds: engine.mostWorkMilliseconds,
    now: () => performance.now(),
    requireInPlace: engine.requireInPlace,
    isLate: engine.isLate,
    wasCommitted: engine.wasCommitted,
    onCommit: (report) => noteCommit(report),
    afterGroup: engine.afterGroup,
  })
  const close = (call: IncomingCall): void => {
    groups.finish()
    engine.close()
    call.resolve(undefined)
    // The answer leaves in this turn; without an open port the thread ends by itself.
    setImmediate(() => verbs.close())
  }

  const noteCommit = answerThreadChannel(verbs, (calls) => {
    const pending: PendingVerb[] = []
    for (const call of calls) {
      const write = writes.get(call.verb)
      if (write !== undefined) pending.push(pendingVerb(call, write, reject))
      else if (call.verb !== CLOSE_CALL) readNow(call, reads.get(call.verb), reject)
    }
    if (pending.length > 0) groups.add(pending)
    for (const call of calls) if (call.verb === CLOSE_CALL) close(call)
  })
  return [...writes.keys(), ...reads.keys()]
}

const inputOf = (call: IncomingCall): unknown[] => call.argument as unknown[]

function pendingVerb(call: IncomingCall, verb: AnyVerb, reject: Rejecting): PendingVerb {
  const input = inputOf(call)
  return {
    run: () => verb(...input),
    ...(verb.together === undefined ? {} : { together: verb.together, request: input[0] }),
    resolve(value) {
      call.resolve(value)
      freeContent(call.verb, input[0])
    },
    reject: (thrown) => reject(call, thrown),
    ...weigh(call.verb, input[0]),
  }
}

function readNow(call: IncomingCall, verb: AnyVerb | undefined, reject: Rejecting): void {
  try {
    if (verb === undefined) throw new TypeError(`the store has no verb ${call.verb}`)
    call.resolve(verb(...inputOf(call)))
  } catch (thrown) {
    reject(call, thrown)
  }
}

type Rejecting = (call: IncomingCall, thrown: unknown) => void

function createRejecting(isDamage: OpenEngine['isDamage']): Rejecting {
  return (call, thrown) => {
    call.reject(thrown)
    if (!isDamage(thrown)) return
    // Uncaught on purpose, and after the rejection has left: the main thread sees the death and ends the process.
    setImmediate(() => {
      throw thrown
    })
  }
}
