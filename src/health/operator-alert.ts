/**
 * What the operator is told (health/README.md "Checks"): what is news, as a mail and as JSON for a webhook
 * (config/README.md "sternpost.yaml": operator). Pure.
 */
import { toUnixSeconds } from '../base/clock.ts'
import type { HealthFinding } from './checks/check.ts'

export type ToldProblem = Pick<HealthFinding, 'check' | 'subject' | 'seen'>

export interface OperatorAlert {
  /** Unix milliseconds. */
  at: number
  hostname: string
  problems: readonly HealthFinding[]
  solved: readonly ToldProblem[]
}

/** Where an alert goes; rejects when it could not be handed over, and is asked again at the next run. */
export interface OperatorChannel {
  name: string
  send(alert: OperatorAlert): Promise<void>
}

/** Of a mail: with more of one fault nobody reads on. */
const MOST_SHOWN = 50

/** RFC 2045 §6.8. */
const BASE64_LINE = /.{1,76}/g

export function alertSubject({ hostname, problems, solved }: OperatorAlert): string {
  const found = problems.length === 0 ? [] : [problems.length === 1 ? '1 problem' : `${problems.length} problems`]
  const parts = solved.length === 0 ? found : [...found, `${solved.length} solved`]
  return `Sternpost ${hostname}: ${parts.join(', ')}`
}

export function alertText({ hostname, problems, solved }: OperatorAlert): string {
  const lines = [
    ...problems.slice(0, MOST_SHOWN).flatMap(({ result, seen, why, fix, ...thing }) => {
      const what = `${result === 'fail' ? 'FAILURE' : 'WARNING'}  ${named(thing)}: ${seen}`
      return [what, `  ${why}`, ...(fix === null ? [] : [`  Fix: ${fix}`]), '']
    }),
    ...more(problems.length, 'problems'),
    ...solved.slice(0, MOST_SHOWN).map((problem) => `SOLVED   ${named(problem)}: it was: ${problem.seen}`),
    ...(solved.length === 0 ? [] : ['']),
    ...more(solved.length, 'solved'),
  ]
  return [...lines, `All checks of ${hostname} now: sternpost doctor`, ''].join('\n')
}

function more(count: number, what: string): string[] {
  return count <= MOST_SHOWN ? [] : [`and ${count - MOST_SHOWN} more ${what}`, '']
}

function named({ check, subject }: Pick<HealthFinding, 'check' | 'subject'>): string {
  return subject === null ? check : `${check} ${subject}`
}

/** A whole message; RFC 5322, and RFC 3834 §5 so that nobody answers it. */
export function alertMail(alert: OperatorAlert, { from, to }: { from: string; to: string }): Buffer {
  const body = Buffer.from(alertText(alert).replaceAll('\n', '\r\n')).toString('base64')
  const lines = [
    `From: "Sternpost" <${from}>`,
    `To: <${to}>`,
    `Subject: ${alertSubject(alert)}`,
    'Auto-Submitted: auto-generated',
    'MIME-Version: 1.0',
    'Content-Type: text/plain; charset=utf-8',
    'Content-Transfer-Encoding: base64',
    '',
    ...(body.match(BASE64_LINE) ?? []),
    '',
  ]
  return Buffer.from(lines.join('\r\n'))
}

export function alertDocument({ at, hostname, problems, solved }: OperatorAlert): object {
  return { kind: 'health', hostname, at: toUnixSeconds(at), problems, solved }
}

/**
 * Which problems are new and which are solved, between what the operator was told and what a run found; and what he
 * knows once this was told.
 */
export function healthChange(
  told: Readonly<Record<string, ToldProblem>>,
  before: readonly HealthFinding[],
  now: readonly HealthFinding[],
): Pick<OperatorAlert, 'problems' | 'solved'> & { told: Record<string, ToldProblem> } {
  const earlier = new Set(before.map(problemKey))
  const current = now.filter(({ result }) => result === 'fail' || result === 'warn')
  const problems = current.filter((finding) => {
    const key = problemKey(finding)
    return !Object.hasOwn(told, key) && (finding.result === 'fail' || earlier.has(key))
  })
  const open = new Set(current.map(thingOf))
  const skipped = new Set(now.filter(({ result }) => result === 'skip').map(thingOf))
  const found = new Set(current.map(problemKey))
  const looked = Object.entries(told).filter(([, problem]) => !skipped.has(thingOf(problem)))
  const solved = looked.filter(([, problem]) => !open.has(thingOf(problem)))
  const gone = new Set(looked.map(([key]) => key).filter((key) => !found.has(key)))
  const kept = Object.entries(told).filter(([key]) => !gone.has(key))
  const added = problems.map((finding): [string, ToldProblem] => {
    const { check, subject, seen } = finding
    return [problemKey(finding), { check, subject, seen }]
  })
  return { problems, solved: solved.map(([, problem]) => problem), told: Object.fromEntries([...kept, ...added]) }
}

/** The fix tells two problems of one thing apart, such as two blocklists; what was seen may vary between two runs. */
function problemKey({ result, check, subject, fix }: HealthFinding): string {
  return JSON.stringify([result, check, subject, fix])
}

export function thingOf({ check, subject }: Pick<HealthFinding, 'check' | 'subject'>): string {
  return JSON.stringify([check, subject])
}
