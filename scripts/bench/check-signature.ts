/**
 * What a system sends, looked at once before it is measured: a few messages go to a sink that keeps them, and mailauth
 * says whether each carries exactly one valid DKIM signature of the sending domain. Throws when not.
 */
import type { Resolver } from 'node:dns/promises'
import { dkimVerify } from 'mailauth'
import type { KeepingSink } from '../../test/support/keeping-sink.ts'
import { until } from '../../test/support/until.ts'
import type { Load, System } from './system.ts'

/** A whole batch is more than enough of a sample. */
const MOST_VERIFIED = 20

/** How many signatures were verified. */
export async function checkSignatures(
  system: System,
  load: Load,
  { sink, resolver, domain }: { sink: KeepingSink; resolver: Resolver; domain: string },
): Promise<number> {
  const first = sink.mails.length
  await system.handOver(load)
  await until(`${system.name} delivers ${load.messages} messages`, () => sink.mails.length >= first + load.messages)
  await system.settle?.()
  await system.check?.()
  if (!system.isSigning) return 0
  const sample = sink.mails.slice(first, first + MOST_VERIFIED)
  for (const { bytes } of sample) await verify(bytes, system.name, resolver, domain)
  return sample.length
}

async function verify(bytes: Buffer, name: string, resolver: Resolver, domain: string): Promise<void> {
  // Asked for TXT records alone.
  const { results } = await dkimVerify(bytes, { resolver: (asked: string) => resolver.resolveTxt(asked) })
  const [result] = results
  if (results.length === 1 && result?.status.result === 'pass' && result.signingDomain === domain) return
  const found = results.map(({ status, signingDomain }) => `${signingDomain}: ${status.result} ${status.comment ?? ''}`)
  throw new Error(`${name} does not send exactly one valid signature of ${domain}: ${found.join(', ') || 'none'}`)
}
