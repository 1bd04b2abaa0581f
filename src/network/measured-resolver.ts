/** Counts and times the questions to the resolver behind it, whose answers it passes on. */
import { SECOND } from '../base/clock.ts'
import type { Front } from './resolver.ts'

export interface DnsNotes {
  onAnswer(type: string, seconds: number): void
  /** `timeout`, `servfail`, `refused`, `bogus` or `other`. */
  onFailure(kind: string): void
}

export function measuredBy({ onAnswer, onFailure }: DnsNotes): Front {
  return async (type, _name, ask) => {
    const startedAt = performance.now()
    const answer = await ask()
    onAnswer(type, (performance.now() - startedAt) / SECOND)
    if (answer.kind === 'no-answer') onFailure(failureKind(answer.reason, answer.isBogus === true))
    return answer
  }
}

/** The reasons are ours: the name that was asked for, a colon, and what went wrong. */
function failureKind(reason: string, isBogus: boolean): string {
  if (isBogus) return 'bogus'
  const cause = reason.slice(reason.lastIndexOf(': ') + 2)
  if (cause.endsWith('in time')) return 'timeout'
  return cause === 'SERVFAIL' || cause === 'REFUSED' ? cause.toLowerCase() : 'other'
}
