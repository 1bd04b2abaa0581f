/**
 * The whole way and its peers, in turns: app to system, durable, signed, relayed to the sink, and for Sternpost
 * outcome, event and webhook row. Each size is a comparison of its own: A B C A B C A B C, medians.
 *
 * Before that every system sends a few messages to a sink that keeps them: exactly one valid signature each.
 */
import { createPublicKey, generateKeyPairSync } from 'node:crypto'
import { Resolver } from 'node:dns/promises'
import { SENDING_DOMAIN } from '../../test/support/two-ips.ts'
import { startKeepingSink } from '../../test/support/keeping-sink.ts'
import { checkSignatures } from './check-signature.ts'
import { median, medianByName, threeDigits } from './figures.ts'
import { findHaraka, HOW_TO_GET_HARAKA, startHaraka } from './haraka-system.ts'
import { startNodemailer, startSigningNodemailer } from './nodemailer-system.ts'
import type { BenchOptions } from './options.ts'
import { batchSystem, BATCH_RECIPIENTS, bytesOf, sternpostSystem } from './sternpost-system.ts'
import { startSternpost, type Sternpost } from './sternpost.ts'
import { startOnPostgres } from './postgres-system.ts'
import { startPostfixAlone, startPostfixWithOpenDkim } from './postfix-system.ts'
import { startSinkAlone } from './sink-system.ts'
import { measureRun, type Load, type RunFigures, type Setting, type Start, type System } from './system.ts'

/** Messages per second by system; null: it is not there. */
export type ComparisonRow = { size: string } & Record<string, number | string | null>

export interface Comparison {
  rows: ComparisonRow[]
  /** The single runs behind the medians, in the order in which they were made. */
  runs: ({ size: string; system: string } & RunFigures)[]
  /** Milliseconds for a message, by system and process. */
  cpu: { size: string; system: string; milliseconds: Record<string, number> }[]
  signaturesVerified: Record<string, number>
  missing: Record<string, string>
}

/** Nobody else's: Sternpost makes its own. */
const SELECTOR = 'bench'
const KEY_BITS = 2_048
const SAMPLE = 5
/**
 * Messages that a system takes before its first run and that are not counted: what is compared is a server that has
 * been running. By the first figure the CPU for a message of the slowest one to come to speed, ours, falls no more: by
 * then it has fallen by some 30 percent, half of that within the first 5,000 and the last of it behind 15,000 to
 * 40,000, differently in each start. Every system in JavaScript takes as many. A compiled one is as quick from the
 * start, and its files are in the page cache.
 */
export const WARM_UP = 40_000
export const WARM_UP_OF_COMPILED = 1_000

export async function compareWholeWay(options: BenchOptions): Promise<Comparison> {
  return compare(
    options,
    [startSinkAlone, startPostfixAlone, startPostfixWithOpenDkim, startNodemailer, startSigningNodemailer],
    (sternpost) => sternpostSystem(sternpost, options.clients, { accepted: 0 }),
  )
}

/** Batches of 1,000 recipients against single messages through Postfix and OpenDKIM. */
export async function compareBatch(options: BenchOptions): Promise<Comparison> {
  const messages = Math.max(1, Math.round(options.messages / BATCH_RECIPIENTS)) * BATCH_RECIPIENTS
  return compare({ ...options, messages, haraka: undefined, sizes: [10] }, [startPostfixWithOpenDkim], (sternpost) =>
    batchSystem(sternpost, { accepted: 0 }),
  )
}

/** The two engines of the store. */
export async function compareEngines(options: BenchOptions): Promise<Comparison> {
  return compare({ ...options, haraka: undefined }, [startOnPostgres(options.clients)], (sternpost) =>
    sternpostSystem(sternpost, options.clients, { accepted: 0 }),
  )
}

async function compare(
  options: BenchOptions,
  peers: readonly Start[],
  toSystem: (sternpost: Sternpost) => System,
): Promise<Comparison> {
  const keeping = await startKeepingSink()
  const setting = makeSetting(keeping.port)
  const comparison: Comparison = { rows: [], runs: [], cpu: [], signaturesVerified: {}, missing: {} }
  const systems: System[] = []
  try {
    const sternpost = await startSternpost({ deliveryPort: keeping.port })
    systems.push(toSystem(sternpost))
    for (const start of peers) systems.push(await start(setting))
    const haraka = peers.length > 1 ? findHaraka(options.haraka) : undefined
    if (haraka !== undefined) systems.push(await startHaraka(haraka, setting))
    else if (peers.length > 1) comparison.missing['haraka_dkim'] = `not there: ${HOW_TO_GET_HARAKA}`
    const resolver = resolverOf(sternpost, setting)
    for (const system of systems.filter(({ isSigning }) => isSigning)) {
      const load: Load = { messages: loadOf(system, SAMPLE), htmlBytes: bytesOf(10) }
      comparison.signaturesVerified[system.name] = await checkSignatures(system, load, {
        sink: keeping,
        resolver,
        domain: SENDING_DOMAIN,
      })
    }
    await keeping.close()
    await bringClientToSpeed(toSystem, setting)
    for (const size of options.sizes) await takeTurns(systems, size, options, setting, comparison)
  } finally {
    for (const system of systems) await system.stop()
  }
  return comparison
}

/** On a server of its own: one that met a client which was slow at first stays some percent slower than others. */
async function bringClientToSpeed(toSystem: (sternpost: Sternpost) => System, { sinkPort }: Setting): Promise<void> {
  const system = toSystem(await startSternpost({ deliveryPort: sinkPort }))
  try {
    await measureRun(system, { messages: loadOf(system, WARM_UP), htmlBytes: bytesOf(10) }, sinkPort)
  } finally {
    await system.stop()
  }
}

async function takeTurns(
  systems: readonly System[],
  size: number,
  { runs, messages }: BenchOptions,
  { sinkPort }: Setting,
  comparison: Comparison,
): Promise<void> {
  const label = `${size}KB`
  const load: Load = { messages, htmlBytes: bytesOf(size) }
  for (const system of systems) {
    const warmUp = system.comesToSpeed ? WARM_UP : WARM_UP_OF_COMPILED
    await measureRun(system, { ...load, messages: loadOf(system, warmUp) }, sinkPort)
  }
  const taken = new Map<string, RunFigures[]>()
  for (let run = 0; run < runs; run += 1) {
    for (const system of systems) {
      const figures = await measureRun(system, load, sinkPort)
      taken.set(system.name, [...(taken.get(system.name) ?? []), figures])
      comparison.runs.push({ size: label, system: system.name, ...figures, perSecond: threeDigits(figures.perSecond) })
    }
  }
  const row: ComparisonRow = { size: label }
  for (const [name, figures] of taken) {
    row[name] = threeDigits(median(figures.map(({ perSecond }) => perSecond)))
    const milliseconds = medianByName(figures.map(({ cpuMilliseconds }) => cpuMilliseconds))
    comparison.cpu.push({ size: label, system: name, milliseconds })
  }
  for (const name of Object.keys(comparison.missing)) row[name] = null
  comparison.rows.push(row)
}

/** A batch is never smaller than it is. */
function loadOf({ name }: System, messages: number): number {
  return name === 'sternpost_batch' ? Math.ceil(messages / BATCH_RECIPIENTS) * BATCH_RECIPIENTS : messages
}

function makeSetting(sinkPort: number): Setting {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: KEY_BITS })
  const privateKeyPem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
  return { sinkPort, domain: SENDING_DOMAIN, selector: SELECTOR, privateKeyPem }
}

/** Publishes the peers' key beside Sternpost's, and asks where both stand. */
function resolverOf({ zone }: Sternpost, { privateKeyPem, selector, domain }: Setting): Resolver {
  const key = createPublicKey(privateKeyPem).export({ type: 'spki', format: 'der' }).toString('base64')
  zone.set(`${selector}._domainkey.${domain}`, { TXT: [`v=DKIM1; k=rsa; p=${key}`] })
  const resolver = new Resolver()
  resolver.setServers([zone.server])
  return resolver
}
