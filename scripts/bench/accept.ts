/**
 * Durable acceptance alone: HTTP POST to the commit, 1 client, 50 clients, and batches, in turns with a bare Koa POST
 * that stores nothing. The messages are due in an hour: nothing is delivered meanwhile.
 */
import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { freePort } from '../../test/support/serve-process.ts'
import { median, percentile, threeDigits } from './figures.ts'
import { runLoad, type LoadOptions } from './load.ts'
import { batchBody, messageBody } from './message.ts'
import type { BenchOptions } from './options.ts'
import { BATCH_RECIPIENTS, bytesOf } from './sternpost-system.ts'
import { FROM, startSternpost, type Sternpost } from './sternpost.ts'
import { cpuSeconds } from './process-figures.ts'

export interface AcceptRow {
  what: string
  clients: number
  perSecond: number
  cpuMilliseconds: number
  p50Milliseconds: number
  p99Milliseconds: number
  /** NaN where nothing is stored. */
  messagesPerCommit: number
}

interface Case {
  what: string
  clients: number
  processId: number
  /** Messages of one request. */
  recipients: number
  load: LoadOptions
}

const BARE_KOA = fileURLToPath(new URL('./bare-koa.ts', import.meta.url))
const LONE_MESSAGES = 300
const BATCHES = 20
const WARM_UP = 500
const AN_HOUR = 3_600

export async function measureAccept({ clients, messages, runs }: BenchOptions): Promise<AcceptRow[]> {
  const sternpost = await startSternpost({ deliveryPort: await freePort() })
  const koa = fork(BARE_KOA, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  try {
    const cases = casesOf(sternpost, koa, await portOf(koa), { clients, messages })
    for (const { load } of cases.slice(0, 2)) await runLoad({ ...load, messages: WARM_UP })
    let accepted = WARM_UP
    const taken = new Map<string, AcceptRow[]>()
    for (let run = 0; run < runs; run += 1) {
      for (const each of cases) {
        const row = await measure(each, sternpost)
        taken.set(row.what, [...(taken.get(row.what) ?? []), row])
        if (each.processId !== koa.pid) accepted += each.load.messages * each.recipients
      }
    }
    await sternpost.check({ messages: accepted, delivered: 0 })
    return [...taken.values()].map(toMedian)
  } finally {
    koa.kill()
    await sternpost.stop()
  }
}

function casesOf(
  { server, key }: Sternpost,
  koa: ChildProcess,
  koaPort: number,
  size: { clients: number; messages: number },
): Case[] {
  const kind = { from: FROM, recipientDomain: 'dest.test', htmlBytes: bytesOf(10) }
  const later = { send_at: Math.floor(Date.now() / 1_000) + AN_HOUR }
  const ours = { baseUrl: server.baseUrl, apiKey: key, body: messageBody(kind, later) }
  const theirs = { ...ours, baseUrl: `http://127.0.0.1:${koaPort}` }
  const single = { recipients: 1, processId: server.processId }
  const batch: LoadOptions = {
    ...ours,
    clients: 1,
    path: '/v1/email/batch',
    messages: BATCHES,
    body: batchBody(kind, BATCH_RECIPIENTS, later),
  }
  return [
    { what: 'durable accept', clients: size.clients, ...single, load: { ...ours, ...size } },
    {
      what: 'bare Koa POST',
      clients: size.clients,
      recipients: 1,
      processId: koa.pid ?? Number.NaN,
      load: { ...theirs, ...size },
    },
    { what: 'durable accept, alone', clients: 1, ...single, load: { ...ours, clients: 1, messages: LONE_MESSAGES } },
    { what: 'batches of 1,000', clients: 1, recipients: BATCH_RECIPIENTS, processId: server.processId, load: batch },
  ]
}

async function measure({ what, clients, recipients, processId, load }: Case, sternpost: Sternpost): Promise<AcceptRow> {
  const [cpuBefore, before] = [cpuSeconds(processId), await commits(sternpost)]
  const { seconds, latencies } = await runLoad(load)
  const [cpuAfter, after] = [cpuSeconds(processId), await commits(sternpost)]
  const messages = load.messages * recipients
  return {
    what,
    clients,
    perSecond: messages / seconds,
    cpuMilliseconds: ((cpuAfter - cpuBefore) * 1_000) / messages,
    p50Milliseconds: percentile(latencies, 0.5),
    p99Milliseconds: percentile(latencies, 0.99),
    messagesPerCommit: (after.messages - before.messages) / (after.commits - before.commits),
  }
}

async function commits(sternpost: Sternpost): Promise<{ messages: number; commits: number }> {
  return {
    messages: await sternpost.metric('sternpost_store_messages_per_commit_sum'),
    commits: await sternpost.metric('sternpost_store_messages_per_commit_count'),
  }
}

function toMedian(rows: readonly AcceptRow[]): AcceptRow {
  const of = (name: Exclude<keyof AcceptRow, 'what' | 'clients'>): number =>
    threeDigits(median(rows.map((row) => row[name])))
  return {
    what: rows[0]?.what ?? '',
    clients: rows[0]?.clients ?? 0,
    perSecond: of('perSecond'),
    cpuMilliseconds: of('cpuMilliseconds'),
    p50Milliseconds: of('p50Milliseconds'),
    p99Milliseconds: of('p99Milliseconds'),
    messagesPerCommit: of('messagesPerCommit'),
  }
}

async function portOf(koa: ChildProcess): Promise<number> {
  const [port] = await once(koa, 'message')
  return Number(port)
}
