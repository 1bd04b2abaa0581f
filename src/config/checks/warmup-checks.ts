/**
 * Checks of `warmup.yaml`: curves that can be climbed, gates in order, names that exist (config/README.md
 * "warmup.yaml").
 */
import { HOUR, MINUTE } from '../../base/clock.ts'
import { type JudgedSettings, namesAt, unknownName } from './pool-checks.ts'
import { errorAt, warningAt, type Finding, type Trees } from '../source/finding.ts'
import { didYouMean } from '../source/explain-mistake.ts'
import { nearestName } from '../settings/nearest-name.ts'
import { entriesAt, nodeAt, textAt } from '../source/at-path.ts'
import type { SourceNode, SourcePath } from '../source/source-tree.ts'
import type { WarmupCurve, WarmupSettings } from '../settings/warmup-settings.ts'

/** Growth from one stage to the next that providers notice (egress/README.md "Curves"). */
const FAST_GROWTH = 2
const NOTICED_FROM = 1_000
/** Keys of provider_share that are no isp. */
const OWN_SHARE_KEYS = ['default', 'min']

export function warmupChecks(settings: JudgedSettings, trees: Trees): Finding[] {
  const root = trees.warmup
  if (root === undefined) return []
  const curves = namesAt(root, ['curves'])
  const findings = [
    ...unknownName({ file: 'warmup', root, path: ['defaults', 'curve'], kind: 'curve', known: curves }),
    ...unknownIsps(root, trees.providers),
  ]
  const { warmup } = settings
  if (warmup === undefined) return findings
  const usedCurves = curvesInUse(settings, warmup)
  for (const [name, curve] of Object.entries(warmup.curves)) {
    findings.push(...stageChecks(name, curve, root))
    if (usedCurves.has(name)) findings.push(...growthChecks(name, curve))
    // Values a curve does not give itself are those of `defaults`, and are checked there.
    if (entriesAt(root, ['curves', name]).some(([key]) => key in warmup.defaults)) {
      findings.push(...gateChecks(curve, ['curves', name]))
    }
  }
  return [...findings, ...gateChecks(warmup.defaults, ['defaults'])]
}

function curvesInUse({ pools }: JudgedSettings, { defaults }: WarmupSettings): Set<string> {
  const curves = Object.values(pools?.pools ?? {}).flatMap(({ ips }) => ips.map(({ curve }) => curve ?? defaults.curve))
  return new Set([defaults.curve, ...curves])
}

function stageChecks(name: string, curve: WarmupCurve, root: SourceNode): Finding[] {
  const path = ['curves', name]
  const [hasStages, hasFormula] = ['stages', 'formula'].map((key) => nodeAt(root, [...path, key]) !== undefined)
  if (hasStages === hasFormula) return [errorAt('warmup', path, 'a curve has either stages or a formula')]
  const findings = curve.stages.flatMap((stage, index) => {
    const before = curve.stages[index - 1] ?? 0
    if (stage >= before) return []
    return [errorAt('warmup', [...path, 'stages', index], `${stage} is below the stage before it (${before})`)]
  })
  const least = curve.advance.min_events
  const first = curve.stages[0] ?? 0
  if (first >= least) return findings
  const text = `stage 1 allows ${first} messages, but advance.min_events asks for ${least}: it would never advance`
  return [...findings, errorAt('warmup', [...path, ...(hasStages ? ['stages', 0] : ['formula'])], text)]
}

function growthChecks(name: string, { stages }: WarmupCurve): Finding[] {
  const index = stages.findIndex((stage, at) => {
    const before = stages[at - 1] ?? 0
    return before >= NOTICED_FROM && stage > before * FAST_GROWTH
  })
  if (index === -1) return []
  const text = `grows from ${stages[index - 1]} to ${stages[index]}: above 1,000, more than double is noticed`
  return [warningAt('warmup', ['curves', name, 'stages', index], text)]
}

type Gates = Pick<WarmupCurve, 'hold' | 'demote' | 'pause' | 'active_window' | 'smoothing'>

function gateChecks(gates: Gates, path: SourcePath): Finding[] {
  const { hold, demote, pause, active_window, smoothing } = gates
  const findings: Finding[] = []
  const order = (gate: string, key: string, [low, high]: [number, number], name: string): void => {
    if (low <= high) return
    const text = `${low} is above ${name}.${key} (${high}); hold, demote and pause must rise`
    findings.push(errorAt('warmup', [...path, gate, key], text))
  }
  for (const key of ['hard_bounce', 'complaint'] as const) {
    order('hold', key, [hold[key], demote[key]], 'demote')
    order('demote', key, [demote[key], pause[key]], 'pause')
  }
  order('hold', 'deferral', [hold.deferral, demote.deferral], 'demote')
  if (pause.for > pause.max) findings.push(errorAt('warmup', [...path, 'pause', 'for'], 'is above pause.max'))
  const { min_burst, max_burst, hourly_fraction } = smoothing
  if (min_burst > max_burst) findings.push(errorAt('warmup', [...path, 'smoothing', 'min_burst'], 'is above max_burst'))
  const window = (active_window.to_minute - active_window.from_minute) * MINUTE
  if (hourly_fraction === 0 || window < HOUR / hourly_fraction) {
    const text = 'this window is too short: at hourly_fraction of the cap an hour, the cap cannot be used'
    findings.push(warningAt('warmup', [...path, 'active_window'], text))
  }
  return findings
}

/** Shares are by the `isp` of a provider; a name that no provider has would never count. */
function unknownIsps(root: SourceNode, providers: SourceNode | undefined): Finding[] {
  if (providers === undefined) return []
  const known = entriesAt(providers, ['providers']).map(([id]) => textAt(providers, ['providers', id, 'isp']) ?? id)
  const paths = [['defaults'], ...entriesAt(root, ['curves']).map(([name]) => ['curves', name])]
  return paths.flatMap((path) =>
    entriesAt(root, [...path, 'provider_share'])
      .filter(([isp]) => !OWN_SHARE_KEYS.includes(isp) && !known.includes(isp))
      .map(([isp]) => {
        const suggestion = nearestName(isp, known)
        const text = `no isp "${isp}" in providers.yaml${didYouMean(suggestion)}`
        return { ...errorAt('warmup', [...path, 'provider_share', isp], text, suggestion), isAboutKey: true }
      }),
  )
}
