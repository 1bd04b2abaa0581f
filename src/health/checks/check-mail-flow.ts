/**
 * How mail, events and reports flow: queue, orphans, warmup, webhooks, feedback (health/README.md "Checks"). What the
 * store knows becomes findings; its errors are passed on.
 */
import { DAY, HOUR, MINUTE } from '../../base/clock.ts'
import { checkOf, ageText, type HealthFinding } from './check.ts'

const QUEUE = checkOf('queue', 'Mail that should have gone waits.')
const ORPHANS = checkOf('orphans', 'The server lost sight of mail or events and found them again: they were late.')
const WARMUP = checkOf('warmup', 'An IP that is held back sends less than planned, or nothing.')
const WEBHOOKS = checkOf('webhooks', 'Your applications do not learn what became of their mail.')
const FEEDBACK = checkOf('feedback', 'Without reports, dead addresses and complaining readers are mailed again.')

const QUEUE_WARN = 15 * MINUTE
const QUEUE_FAIL = 2 * HOUR
/** Of a provider's waiting mail, with so much of it at least. */
const DEFERRED = { share: 0.5, least: 100 }

export const checkQueue = QUEUE.onServer(async (server, { clock }) => {
  const { oldestDueAt, overdue, stuck, groups } = await server.queue()
  const findings: HealthFinding[] = []
  if (overdue + stuck > 0) {
    const seen = `${overdue} messages wait beyond their lifetime, ${stuck} are leased for too long`
    const fix = 'systemctl restart sternpost; if it comes back, report it with: journalctl -u sternpost -p warning'
    findings.push(QUEUE.fail(null, seen, fix))
  }
  const age = oldestDueAt === null ? 0 : clock.now() - oldestDueAt
  const seen = age === 0 ? 'nothing is overdue' : `the oldest due message waits for ${ageText(age)}`
  const fix = 'sternpost queue list --by provider; sternpost queue explain <message>'
  if (age > QUEUE_FAIL) findings.push(QUEUE.fail(null, seen, fix))
  else findings.push(age > QUEUE_WARN ? QUEUE.warn(null, seen, fix) : QUEUE.ok(null, seen))
  const held = groups.reduce((sum, group) => sum + group.held, 0)
  // Without --yes both say how many there are, and do nothing.
  const release = 'sternpost queue list --held; then: sternpost queue release --held, or: sternpost queue drop --held'
  if (held > 0) findings.push(QUEUE.warn(null, `${held} messages are held`, release))
  for (const { name, waiting, due, held: ofThem } of groups) {
    const deferred = waiting - due - ofThem
    if (waiting < DEFERRED.least || deferred / waiting < DEFERRED.share) continue
    const seen = `${deferred} of ${waiting} messages wait for another try`
    findings.push(QUEUE.warn(name ?? 'other', seen, 'sternpost path list; sternpost queue list --by provider'))
  }
  return findings
})

export const checkOrphans = ORPHANS.onServer(async (server) => {
  const { messages, webhooks, upMilliseconds } = await server.orphans()
  const start = `since the start ${ageText(upMilliseconds)} ago`
  if (messages + webhooks === 0) return [ORPHANS.ok(null, `nothing was in nobody's hand ${start}`)]
  const seen = `${messages} messages and ${webhooks} webhook deliveries were in nobody's hand ${start}`
  const fix = 'report it with these lines: journalctl -u sternpost -p warning | grep "in nobody\'s hand"'
  return [ORPHANS.warn(null, seen, fix)]
})

const NOON_HOUR = 12
const ALMOST_ALL = 0.95

export const checkWarmup = WARMUP.onServer(async (server, { clock, ips }) => {
  const asked = new Set(ips.map(({ address }) => address))
  const isMorning = new Date(clock.now()).getUTCHours() < NOON_HOUR
  const views = (await server.ips()).filter(({ ip }) => asked.has(ip))
  return views.map(({ ip, status, reason, warmup }) => {
    const show = `sternpost ip show ${ip}`
    switch (status) {
      case 'suspended':
      case 'paused':
        const fix = `${show}; sternpost ip ${status === 'paused' ? 'warmup ' : ''}resume ${ip}`
        return WARMUP.warn(ip, `it is ${status}: ${reason ?? 'no reason was given'}`, fix)
      case 'disabled':
        return WARMUP.warn(ip, `it is disabled: ${reason ?? 'by pools.yaml'}`, 'see ip-present; sternpost reload')
      case 'cold':
        return WARMUP.ok(ip, 'it is cold and sends nothing until its warmup is started')
      default:
    }
    if (warmup?.dailyLimit == null) return WARMUP.ok(ip, 'it is warmed')
    const used = `stage ${warmup.stage}: ${warmup.sentToday} of ${warmup.dailyLimit} sent today`
    if (warmup.holdReason !== null) return WARMUP.warn(ip, `${used}; it does not advance: ${warmup.holdReason}`, show)
    if (isMorning && warmup.sentToday >= ALMOST_ALL * warmup.dailyLimit) {
      return WARMUP.warn(ip, `${used}, before noon (UTC)`, 'spread the mail over the day, or add an IP to the pool')
    }
    return WARMUP.ok(ip, used)
  })
})

const OLDEST_EVENT = 2 * HOUR
/** One failed post is tried again in a minute. */
const FAILURES_IN_A_ROW = 3

export const checkWebhooks = WEBHOOKS.onServer(async (server, { clock }) => {
  const { endpoints, oldestDueAt } = await server.webhooks()
  if (endpoints.length === 0) return [WEBHOOKS.skip(null, 'no webhook endpoint is registered')]
  const findings = endpoints.map(({ id, url, status, disabledReason, consecutiveFailures, deadLetters }) => {
    const look = `sternpost webhook deliveries --endpoint ${id} --status failed`
    if (status === 'disabled') {
      const seen = `it is disabled (${disabledReason ?? 'by hand'})`
      return WEBHOOKS.warn(url, seen, `mend it, then: sternpost webhook enable ${id}`)
    }
    if (consecutiveFailures >= FAILURES_IN_A_ROW) {
      // What is tried again is no dead letter yet.
      const waiting = `sternpost webhook deliveries --endpoint ${id} --status pending`
      const fix = `sternpost webhook test ${id} says why; what waits: ${waiting}`
      return WEBHOOKS.warn(url, `${consecutiveFailures} posts in a row failed`, fix)
    }
    if (deadLetters > 0) {
      const fix = `${look}; then: sternpost webhook replay --endpoint ${id} --since 30d`
      return WEBHOOKS.warn(url, `${deadLetters} events were given up`, fix)
    }
    return WEBHOOKS.ok(url, 'events are answered')
  })
  const age = oldestDueAt === null ? 0 : clock.now() - oldestDueAt
  if (age <= OLDEST_EVENT) return findings
  return [...findings, WEBHOOKS.fail(null, `the oldest event waits for ${ageText(age)}`, 'sternpost webhook list')]
})

const REPORTED_IN = 30 * DAY
/** Of so many messages some always bounce later, and some readers always complain: 1 in 1,000, and 1 in 10,000. */
const ENOUGH_TO_BOUNCE = 10_000
const ENOUGH_TO_COMPLAIN = 100_000

export const checkFeedback = FEEDBACK.onServer(async (server, { clock }) => {
  const { sent, bounces, complaints } = await server.reportSums(clock.now() - REPORTED_IN)
  const expected = (kind: string, came: number, enough: number, fix: string): HealthFinding => {
    if (came > 0) return FEEDBACK.ok(kind, `${came} came by mail in 30 days`)
    const seen = `none came by mail in 30 days, of ${sent} messages`
    return sent < enough ? FEEDBACK.skip(kind, `${seen}: too few to tell`) : FEEDBACK.warn(kind, seen, fix)
  }
  const enrol = 'enrol at the feedback loops; what to enter: sternpost doctor feedback'
  return [
    expected('bounce', bounces, ENOUGH_TO_BOUNCE, 'sternpost doctor inbound names'),
    expected('complaint', complaints, ENOUGH_TO_COMPLAIN, enrol),
  ]
})
