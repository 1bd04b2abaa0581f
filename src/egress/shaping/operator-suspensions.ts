/**
 * Suspensions by hand: nothing leaves from an IP to a mailbox provider until somebody resumes it (commands/README.md
 * "The command line"). They stand beside the ladder, which receivers move, and cover paths that are not known yet.
 * Pure.
 */
import type { PathView } from './shaping.ts'
import { timeText } from './hold-views.ts'
import type { OperatorSuspension } from './records.ts'

export interface HeldProvider {
  ip: string
  /** Id of a block of providers.yaml. */
  provider: string
  suspension: OperatorSuspension
}

export function operatorText({ ip, provider, suspension }: HeldProvider): string {
  return (
    `the paths from ${ip} to ${provider} are suspended ${causeText(suspension)}, since ` +
    `${timeText(suspension.since)}; sternpost ip resume ${ip} --provider ${provider} ends that`
  )
}

/** All routes of the provider as one path. */
export function operatorView({ ip, provider, suspension }: HeldProvider, isp: string): PathView {
  return {
    ip,
    pool: null,
    route: provider,
    provider,
    isp,
    domain: null,
    status: 'suspended',
    concurrency: null,
    step: 0,
    holds: [
      {
        kind: 'suspension',
        scope: 'provider',
        rule: null,
        cause: causeText(suspension),
        since: suspension.since,
        until: null,
        rate: null,
        connections: null,
        messagesPerConnection: null,
      },
    ],
  }
}

function causeText({ actor, reason }: OperatorSuspension): string {
  return `by ${actor}${reason === null ? '' : `: ${reason}`}`
}
