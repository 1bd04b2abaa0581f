/**
 * `/dev/replies`: rules for the capture server (capture/README.md "Rules for replies"), shown, replaced as a whole, or
 * removed. On a mistake nothing changes, and all mistakes of a rule are named.
 */
import { MINUTE } from '../base/clock.ts'
import { durationText, readDuration } from '../config/settings/field-types.ts'
import { readJsonBody, readTimes, refusal, sendData, sendList, type DevRoutes } from './dev-route.ts'
import { STAGES, type CaptureReplies, type ReplyRule, type RuleReply, type Stage } from '../capture/replies.ts'

const MOST_RULES = 100
const LONGEST_DELAY = 15 * MINUTE
const MOST_PATTERN_CHARACTERS = 254
/** Many of them would make a comparison slow. */
const MOST_STARS = 3
const KNOWS_RECIPIENT: readonly Stage[] = ['rcpt', 'data', 'dot']
const FIELDS = ['to', 'stage', 'reply', 'times', 'probability']

export function replyRoutes(replies: CaptureReplies): DevRoutes {
  return {
    'GET /dev/replies': (context) => sendList(context, replies.rules().map(ruleView)),
    'PUT /dev/replies': async (context) => {
      replies.set(readRules(await readJsonBody(context)))
      sendList(context, replies.rules().map(ruleView))
    },
    'DELETE /dev/replies': (context) => sendData(context, { deleted: replies.clear() }),
  }
}

/** As it was written. */
function ruleView({ to, stage, reply, times, probability }: ReplyRule): Record<string, unknown> {
  return { to, stage, reply: replyView(reply), times, probability }
}

function replyView(reply: RuleReply): unknown {
  if (reply.kind === 'reply') return `${reply.code} ${reply.text}`
  return reply.kind === 'delay' ? { delay: durationText(reply.milliseconds) } : reply.kind
}

function readRules(document: unknown): ReplyRule[] {
  if (!Array.isArray(document) || document.length > MOST_RULES) {
    throw refusal(`the body must be a list of at most ${MOST_RULES} rules`)
  }
  return document.map((value: unknown, index) => {
    const problems: string[] = []
    const rule = readRule(value, problems)
    if (problems.length === 0) return rule
    throw refusal(problems.map((problem) => `[${index}].${problem}`).join('; '))
  })
}

/** What is wrong goes to `problems`; the rule is of use only without any. */
function readRule(value: unknown, problems: string[]): ReplyRule {
  const given = new Map<string, unknown>(typeof value === 'object' && value !== null ? Object.entries(value) : [])
  for (const name of given.keys()) if (!FIELDS.includes(name)) problems.push(`${name}: is not known here`)
  const stage = STAGES.find((known) => known === given.get('stage'))
  if (stage === undefined) problems.push(`stage: must be one of ${STAGES.join(', ')}`)
  const to = readPattern(given.get('to') ?? '*', problems)
  if (stage !== undefined && to !== '*' && !KNOWS_RECIPIENT.includes(stage)) {
    problems.push(`to: must be "*" at ${stage}, where the recipient is not known yet`)
  }
  const reply = readReply(given.get('reply'), problems)
  if (reply.kind === 'missing' && stage !== 'starttls') problems.push('reply: "missing" is for starttls alone')
  return {
    to,
    stage: stage ?? 'connect',
    reply,
    times: readTimes(given.get('times') ?? null, problems),
    probability: readProbability(given.get('probability') ?? 1, problems),
  }
}

function readPattern(value: unknown, problems: string[]): string {
  const text = typeof value === 'string' ? value.toLowerCase() : ''
  const isTooMuch = text.length > MOST_PATTERN_CHARACTERS || text.split('*').length - 1 > MOST_STARS
  if (text !== '' && !isTooMuch) return text
  problems.push(`to: must be "*", a domain or an address with at most ${MOST_STARS} "*"`)
  return '*'
}

function readReply(value: unknown, problems: string[]): RuleReply {
  if (value === 'close' || value === 'missing') return { kind: value }
  if (typeof value === 'string') {
    // A code of 4xx or 5xx and a text of one line in US-ASCII (RFC 5321 §4.2).
    const [, code, text = ''] = /^([45]\d\d) ([ -~]{1,500})$/.exec(value) ?? []
    if (code !== undefined) return { kind: 'reply', code: Number(code), text }
  }
  if (typeof value === 'object' && value !== null && 'delay' in value) {
    const reading = readDuration(value.delay, { max: LONGEST_DELAY })
    if (reading.ok) return { kind: 'delay', milliseconds: reading.value }
    problems.push(`reply.delay: ${reading.problem}`)
    return { kind: 'close' }
  }
  problems.push('reply: must be a line such as "451 4.3.0 later" (4xx or 5xx), "close" or {"delay":"5s"}')
  return { kind: 'close' }
}

function readProbability(value: unknown, problems: string[]): number {
  if (typeof value === 'number' && value >= 0 && value <= 1) return value
  problems.push('probability: must be a number from 0 to 1')
  return 1
}
