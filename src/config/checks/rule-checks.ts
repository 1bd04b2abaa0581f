/**
 * Checks of the rules in `providers.yaml` and `bounces.yaml` (config/README.md, egress/README.md "Reply rules"): ids,
 * names, and expressions, which compile, are safe and fast and match their example. A rule whose example an earlier one
 * already catches never acts, and is a warning unless it says `also: true`. On the trees, so that a mistake elsewhere
 * hides nothing.
 */
import { errorAt, warningAt, type FileName, type Finding, type Trees } from '../source/finding.ts'
import { compilePattern, createTrial, patternProblem } from './pattern-safety.ts'
import { namesAt, unknownName } from './pool-checks.ts'
import { ANY_PROVIDER } from '../settings/provider-settings.ts'
import { itemsAt, nearestPosition, nodeAt, positionText, textAt } from '../source/at-path.ts'
import { valueOf, type SourceNode, type SourcePath } from '../source/source-tree.ts'

const TOO_SLOW = 'takes more than 50 ms on hostile text; make it simpler'

type Trial = ReturnType<typeof createTrial>

export function ruleChecks({ providers, bounces }: Trees): Finding[] {
  const names = namesAt(providers, ['providers'])
  const known = names && [...names, ANY_PROVIDER]
  const trial = createTrial()
  const findings: Finding[] = []
  if (providers !== undefined) {
    findings.push(...checkRules({ file: 'providers', list: 'replies', root: providers, known, trial }))
    findings.push(...actionChecks(providers), ...machineChecks(providers, trial))
  }
  if (bounces === undefined) return findings
  return [...findings, ...checkRules({ file: 'bounces', list: 'rules', root: bounces, known, trial })]
}

interface RuleFile {
  file: FileName
  /** The key of the list. */
  list: string
  root: SourceNode
  known: string[] | undefined
  trial: Trial
}

function checkRules({ file, list, root, known, trial }: RuleFile): Finding[] {
  const rules = itemsAt(root, [list]).map((node, index) => readRule(node, [list, index]))
  const findings: Finding[] = []
  const first = new Map<string, Rule>()
  for (const rule of rules) {
    const earlier = first.get(rule.id)
    if (earlier !== undefined && rule.id !== '') {
      const where = positionText(nearestPosition(root, earlier.path))
      findings.push(errorAt(file, [...rule.path, 'id'], `"${rule.id}" is the id of an earlier rule (${where})`))
    }
    first.set(rule.id, earlier ?? rule)
    findings.push(...unknownName({ file, root, path: [...rule.path, 'provider'], kind: 'provider', known }))
    const problems = expressionChecks(file, rule, trial)
    findings.push(...problems)
    // What is refused may be slow: it is not run on the examples of other rules.
    if (problems.length > 0) rule.expression = undefined
  }
  return [...findings, ...shadowedRules(file, rules)]
}

type Rule = ReturnType<typeof readRule>

function readRule(node: SourceNode, path: SourcePath) {
  const text = (key: string): string => textAt(node, [key]) ?? ''
  const isSet = (key: string): boolean => valueAt(node, key) === true
  const match = text('match')
  const isTaken = match !== '' && patternProblem(match) === undefined
  return {
    path,
    id: text('id'),
    provider: textAt(node, ['provider']) ?? ANY_PROVIDER,
    match,
    example: text('example'),
    /** Empty: every stage. */
    stages: itemsAt(node, ['stage']).map(valueOf),
    /** First digit of the codes it looks at; null: all. */
    codeClass: valueAt(node, 'class') ?? null,
    isWeak: isSet('weak'),
    isAlso: isSet('also'),
    expression: isTaken ? compilePattern(match) : undefined,
  }
}

function valueAt(node: SourceNode, key: string): unknown {
  const found = nodeAt(node, [key])
  return found && valueOf(found)
}

function expressionChecks(file: FileName, { path, match, example, expression }: Rule, trial: Trial): Finding[] {
  if (match === '') return []
  const at = [...path, 'match']
  if (expression === undefined) return [errorAt(file, at, patternProblem(match) ?? 'is refused')]
  if (!trial(match, example)) return [errorAt(file, at, TOO_SLOW)]
  if (example === '' || expression.test(example)) return []
  return [errorAt(file, [...path, 'example'], 'the rule does not match its own example')]
}

/** Rules that never act on the text they were made for. */
function shadowedRules(file: FileName, rules: Rule[]): Finding[] {
  // Weak rules are tried after all others.
  const inOrder = [...rules.filter(({ isWeak }) => !isWeak), ...rules.filter(({ isWeak }) => isWeak)]
  return inOrder.flatMap((rule, index) => {
    if (rule.isAlso || rule.example === '') return []
    const catcher = inOrder.slice(0, index).find((earlier) => catches(earlier, rule))
    const text = `the rule "${catcher?.id}" before it catches this example first`
    return catcher === undefined ? [] : [warningAt(file, [...rule.path, 'example'], text)]
  })
}

function catches(earlier: Rule, later: Rule): boolean {
  const isSameProvider = earlier.provider === later.provider
  const coversStages =
    earlier.stages.length === 0 ||
    (later.stages.length > 0 && later.stages.every((stage) => earlier.stages.includes(stage)))
  const coversClass = earlier.codeClass === null || later.example.startsWith(String(earlier.codeClass))
  return isSameProvider && coversStages && coversClass && earlier.expression?.test(later.example) === true
}

/** Keys that say what `do: limit` limits; the other actions take none of them. */
const LIMIT_KEYS = ['rate', 'connections', 'messages_per_connection']

function actionChecks(root: SourceNode): Finding[] {
  return [...itemsAt(root, ['replies']).keys()].flatMap((index) => {
    const path = ['replies', index]
    const action = textAt(root, [...path, 'do'])
    const limits = LIMIT_KEYS.filter((key) => nodeAt(root, [...path, key]) !== undefined)
    if (action === 'limit' && limits.length === 0) {
      return [errorAt('providers', [...path, 'do'], `limit needs one of ${LIMIT_KEYS.join(', ')}`)]
    }
    if (action === undefined || action === 'limit') return []
    return limits.map((key) => errorAt('providers', [...path, key], `has no meaning with do: ${action}`))
  })
}

/** User agents: no example, but as safe as the rest. */
function machineChecks(root: SourceNode, trial: Trial): Finding[] {
  return itemsAt(root, ['machines']).flatMap((node, index) => {
    const pattern = node.kind === 'scalar' ? String(node.value) : ''
    const problem = patternProblem(pattern) ?? (trial(pattern, '') ? undefined : TOO_SLOW)
    return problem === undefined ? [] : [errorAt('providers', ['machines', index], problem)]
  })
}
