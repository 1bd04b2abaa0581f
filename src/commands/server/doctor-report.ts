/** What `sternpost doctor` prints for people: what is wrong, with its fix, and a count of the rest. Pure. */
import { SECOND } from '../../base/clock.ts'
import type { HealthFinding, Result } from '../../health/checks/finding.ts'
import { printable } from '../shared/print.ts'

export type DoctorFinding = HealthFinding & { last_ok_at: number | null }

export interface DoctorReport {
  /** running: it answered. absent: nothing that only it knows is in here. */
  server: 'running' | 'absent'
  duration_ms: number
  summary: Record<Result, number>
  checks: DoctorFinding[]
  /** Of `--ticket` and of `doctor feedback`; else null. */
  text: string | null
}

interface DoctorScreen {
  hasColours: boolean
  /** Also what is well. */
  showsAll: boolean
}

const MARKS: Readonly<Record<Result, string>> = { ok: '✔', warn: '⚠', fail: '✖', skip: '-' }
const ORDER: readonly Result[] = ['fail', 'warn', 'skip', 'ok']
/** ANSI: red, yellow, grey, green. */
const COLOURS: Readonly<Record<Result, string>> = { fail: '31', warn: '33', skip: '90', ok: '32' }

export function doctorText(report: DoctorReport, screen: DoctorScreen): string {
  const { checks, summary, duration_ms: duration, text } = report
  const shown = ORDER.flatMap((result) => checks.filter((finding) => finding.result === result)).filter(
    ({ result }) => screen.showsAll || result === 'fail' || result === 'warn',
  )
  const width = Math.max(0, ...shown.map(({ check }) => check.length))
  const skipped = summary.skip === 0 ? '' : `, ${summary.skip} skipped`
  const counts = `${summary.ok} ok, ${plural(summary.warn, 'warning')}, ${plural(summary.fail, 'failure')}${skipped}`
  return [
    ...groupsOf(shown).flatMap((group) => linesOf(group, width, screen)),
    `${counts} (${(duration / SECOND).toFixed(1)} s)`,
    ...(text === null ? [] : ['', text.trimEnd()]),
    '',
  ].join('\n')
}

/** What follows each other with the same fix is shown with it once. */
function groupsOf(findings: readonly HealthFinding[]): HealthFinding[][] {
  const groups: HealthFinding[][] = []
  for (const finding of findings) {
    const last = groups.at(-1)?.[0]
    const isSame = last?.check === finding.check && last.result === finding.result && last.fix === finding.fix
    if (isSame) groups.at(-1)?.push(finding)
    else groups.push([finding])
  }
  return groups
}

function linesOf(group: readonly HealthFinding[], width: number, { hasColours }: DoctorScreen): string[] {
  const heads = group.map(({ result, check, subject, seen }) => {
    const mark = hasColours ? `\u001b[${COLOURS[result]}m${MARKS[result]}\u001b[0m` : MARKS[result]
    return `${mark} ${check.padEnd(width)}  ${printable(subject === null ? seen : `${subject}  ${seen}`)}`
  })
  const advice = group.slice(0, 1).flatMap(({ result, why, fix }) => {
    if (result === 'ok' || result === 'skip') return []
    return fix === null ? [why] : [why, `Fix: ${fix}`]
  })
  return [...heads, ...advice.map((line) => `${' '.repeat(width + INDENT)}${printable(line)}`)]
}

/** Mark, and the spaces around the name of the check. */
const INDENT = 4

function plural(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? '' : 's'}`
}
