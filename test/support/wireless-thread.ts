/**
 * Stands in for a delivery thread where the wire is replaced: every message is accepted with 250, at once.
 *
 * What a receiver would have seen is written down (`wire-log.ts`) before anything is told to the main thread, so that
 * it is there whatever is killed.
 */
import { appendFileSync } from 'node:fs'
import { parentPort, workerData } from 'node:worker_threads'
import type { DeliveryThreadSettings } from '../../src/delivery/session/delivery-thread.ts'
import {
  NO_CONNECTION,
  type DispatchedRow,
  type FromThread,
  type PathBatch,
  type ThreadConnectionNote,
  type ToThread,
  type TryResult,
} from '../../src/delivery/protocol/try-result.ts'
import { lineOf, wireLogIn } from './wire-log.ts'

const TAKEN = { code: 250, enhancedCode: '2.0.0', text: '250 2.0.0 taken' }
const settings: DeliveryThreadSettings = workerData
const { storeLocation } = settings
if (storeLocation.engine !== 'sqlite') throw new Error('the log of these threads is beside a file')
const file = wireLogIn(storeLocation.folder)
const waiting = new Map<number, PathBatch[]>()
let nextMark = 1
let clockOffset = 0

const post = (message: FromThread): void => parentPort?.postMessage(message)
const now = (): number => Date.now() + clockOffset

function take(batches: PathBatch[]): void {
  const at = now()
  const lines = batches.flatMap(({ path, rows }) =>
    rows.map(({ recipientDomain, messageId }) =>
      lineOf({ at, source: path.source, recipientDomain, message: messageId }),
    ),
  )
  appendFileSync(file, lines.join(''))
  const id = nextMark++
  waiting.set(id, batches)
  const claims = batches.flatMap(({ rows }) => rows.map(({ claim }) => claim))
  post({ kind: 'turn', turn: { notes: [], results: [], mark: { id, claims } } })
}

function finish(id: number, stale: readonly number[]): void {
  const batches = waiting.get(id) ?? []
  waiting.delete(id)
  const results = batches.flatMap(({ rows }) => rows.map((row) => resultOf(row, stale)))
  post({ kind: 'turn', turn: { notes: batches.flatMap(notesOf), results, mark: null } })
}

function resultOf({ claim }: DispatchedRow, stale: readonly number[]): TryResult {
  return {
    claim,
    startedAt: now(),
    durationMilliseconds: 1,
    facts: NO_CONNECTION,
    wasRcptSent: true,
    transcript: null,
    end: stale.includes(claim)
      ? { kind: 'returned', why: 'stale', reason: 'not ours' }
      : { kind: 'accepted', reply: TAKEN },
  }
}

/** One connection for each batch. */
function notesOf({ path, site, rows: [first, ...rest] }: PathBatch): ThreadConnectionNote[] {
  if (first === undefined) return []
  const connection = {
    pathKey: path.key,
    host: site.hosts[0]?.name ?? null,
    address: null,
    domain: first.recipientDomain,
    tls: null,
  }
  return [
    { ...connection, note: { kind: 'opened', inFlight: 1 } },
    { ...connection, note: { kind: 'ended-well', delivered: 1 + rest.length } },
  ]
}

parentPort?.on('message', (message: ToThread) => {
  switch (message.kind) {
    case 'dispatch':
      clockOffset = message.clockOffset
      return take(message.batches)
    case 'marked':
      return finish(message.id, message.stale)
    case 'tick':
      return post({ kind: 'tick', id: message.id })
    case 'claims': {
      const claims = [...waiting.values()].flat().flatMap(({ rows }) => rows.map(({ claim }) => claim))
      return post({ kind: 'claims', id: message.id, claims })
    }
    case 'where':
      return post({ kind: 'where', id: message.id, place: null })
    case 'drain':
      return post({ kind: 'drained' })
    case 'end':
      return process.exit()
    case 'limit':
    case 'abort':
      // Everything was sent when it came.
      return undefined
  }
})
