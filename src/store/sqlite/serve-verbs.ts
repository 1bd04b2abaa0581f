/**
 * Answers the verbs that come over a port until one of them says to close.
 *
 * Writing verbs share commits (`group-commit.ts`); reading verbs see what was committed and are answered at once. A
 * damaged database is no case for a verb's caller: the thread dies, and the process with it (test/README.md "Process
 * and power").
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

type AnyVerb = (argument: unknown) => unknown

export function serveVerbs(
  database: OpenDatabase,
  verbs: MessagePort,
  location: Pick<StoreLocation, 'commitLingerMilliseconds' | 'commitMostRows' | 'walMaxBytes'>,
): void {
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
}

function pendingVerb(call: IncomingCall, verb: AnyVerb): PendingVerb {
  return {
    run: () => verb(call.argument),
    resolve(value) {
      call.resolve(value)
      freeContent(call.verb, call.argument)
    },
    reject: (thrown) => rejectCall(call, thrown),
    ...weigh(call.verb, call.argument),
  }
}

function readNow(call: IncomingCall, verb: AnyVerb | undefined): void {
  try {
    if (verb === undefined) throw new TypeError(`the store has no verb ${call.verb}`)
    call.resolve(verb(call.argument))
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
