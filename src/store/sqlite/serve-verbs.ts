/**
 * Answers the verbs that come over a port, with their arguments as a list, until one of them says to close; returns
 * their names. Writing verbs share commits; reading ones see what was committed and are answered at once. A damaged
 * database ends the thread, and the process with it.
 */
import type { MessagePort } from 'node:worker_threads'
import { ServiceError } from '../../base/errors.ts'
import { answerThreadChannel, type IncomingCall } from '../../base/threads/thread-channel.ts'
import { createPlaceWatch, NOT_IN_PLACE } from '../../base/database-place.ts'
import type { StoreLocation } from '../store-location.ts'
import { createCheckpoint } from './engine/checkpoint.ts'
import { isDamage, type OpenDatabase } from './engine/database.ts'
import { createGroupCommit, type PendingVerb } from './engine/group-commit.ts'
import { CLOSE_CALL } from './thread-messages.ts'
import { createReadVerbs, createWriteVerbs, freeContent, weigh } from './verbs.ts'

type AnyVerb = (...input: unknown[]) => unknown

export function serveVerbs(
  database: OpenDatabase,
  verbs: MessagePort,
  location: Pick<StoreLocation, 'commitLingerMilliseconds' | 'commitMostRows' | 'walMaxBytes'>,
): string[] {
  const writes = new Map(Object.entries(createWriteVerbs(database))) as ReadonlyMap<string, AnyVerb>
  const reads = new Map(Object.entries(createReadVerbs(database))) as ReadonlyMap<string, AnyVerb>
  const isInPlace = createPlaceWatch(database.writer.name)
  const groups = createGroupCommit({
    database: database.writer,
    lingerMilliseconds: location.commitLingerMilliseconds,
    mostRows: location.commitMostRows,
    now: () => performance.now(),
    requireInPlace() {
      if (!isInPlace()) throw new ServiceError('unavailable', NOT_IN_PLACE, { headers: { 'Retry-After': '60' } })
    },
    onCommit: (report) => noteCommit(report),
    afterGroup: createCheckpoint(database.writer, location.walMaxBytes),
  })
  const close = (call: IncomingCall): void => {
    groups.finish()
    database.close()
    call.resolve(undefined)
    // The answer leaves in this turn; without an open port the thread ends by itself.
    setImmediate(() => verbs.close())
  }

  const noteCommit = answerThreadChannel(verbs, (calls) => {
    const pending: PendingVerb[] = []
    for (const call of calls) {
      const write = writes.get(call.verb)
      if (write !== undefined) pending.push(pendingVerb(call, write))
      else if (call.verb !== CLOSE_CALL) readNow(call, reads.get(call.verb))
    }
    if (pending.length > 0) groups.add(pending)
    for (const call of calls) if (call.verb === CLOSE_CALL) close(call)
  })
  return [...writes.keys(), ...reads.keys()]
}

const inputOf = (call: IncomingCall): unknown[] => call.argument as unknown[]

function pendingVerb(call: IncomingCall, verb: AnyVerb): PendingVerb {
  const input = inputOf(call)
  return {
    run: () => verb(...input),
    resolve(value) {
      call.resolve(value)
      freeContent(call.verb, input[0])
    },
    reject: (thrown) => rejectCall(call, thrown),
    ...weigh(call.verb, input[0]),
  }
}

function readNow(call: IncomingCall, verb: AnyVerb | undefined): void {
  try {
    if (verb === undefined) throw new TypeError(`the store has no verb ${call.verb}`)
    call.resolve(verb(...inputOf(call)))
  } catch (thrown) {
    rejectCall(call, thrown)
  }
}

function rejectCall(call: IncomingCall, thrown: unknown): void {
  call.reject(thrown)
  if (!isDamage(thrown)) return
  // Uncaught on purpose, and after the rejection has left: the main thread sees the death and ends the process.
  setImmediate(() => {
    throw thrown
  })
}
