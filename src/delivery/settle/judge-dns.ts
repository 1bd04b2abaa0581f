/** What an answer of the DNS without hosts means for one message. Pure. network/README.md "Mail hosts". */
import { HOUR, MINUTE } from '../../base/clock.ts'
import { unreachable } from '../../base/errors.ts'
import { bounceFor } from '../../mail/reply/classify-reply.ts'
import { PROTECTION_CODE, type NoHosts } from '../route/route-message.ts'
import type { JudgedMessage, Judgement } from './judge-reply.ts'
import { nextTryAt, PATH_WAITS, scheduledWait } from './retry-schedule.ts'

/** A name that does not exist is asked for again before it is believed (network/README.md "Answers of the DNS"). */
const CONFIRM_NO_NAME_AFTER = 10 * MINUTE
/** Hosts without an address: two lookups this far apart must agree (network/README.md "Mail hosts"). */
const CONFIRM_NO_ADDRESS_AFTER = HOUR

const NO_REPLY = { stage: 'connect' as const, rule: null }
const WORDS = {
  'null-mx': 'the domain does not accept mail (null MX)',
  'no-name': 'the domain does not exist',
  'no-address': 'no mail server of the domain has an address',
  'refused-addresses': 'the mail servers of the domain have only addresses that are not connected to',
}

/** What was said in place of hosts, as a clause. */
export function dnsProblem(answer: NoHosts): string {
  if (answer.kind === 'no-usable-host') return answer.reason
  if (answer.kind !== 'no-answer') return WORDS[answer.kind]
  return `${answer.isBogus === true ? 'the DNS cannot be believed' : 'the DNS did not answer'}: ${answer.reason}`
}

/** What an answer without hosts leads to. `jitter`: `delivery.retry_jitter`. */
export function judgeDns(answer: NoHosts, message: JudgedMessage, now: number, jitter: number): Judgement {
  const words = dnsProblem(answer)
  const fail = (code: string, wait?: number, reply = words): Judgement => {
    const ownWait = wait ?? scheduledWait(PATH_WAITS, message.pathFailures + 1, message.id, jitter)
    const retryAt = nextTryAt(now, ownWait, message.expiresAt) ?? message.expiresAt
    return { ...NO_REPLY, outcome: { kind: 'path-failed', retryAt }, reply, code, category: 'dns', suppress: 'never' }
  }
  const end = (category: 'null_mx' | 'bad_domain'): Judgement => {
    const bounce = bounceFor(category, null, words)
    const outcome = { kind: 'bounced' as const, bounce }
    return { ...NO_REPLY, outcome, reply: words, code: bounce.code, category, suppress: 'always' }
  }
  switch (answer.kind) {
    case 'null-mx':
      return end('null_mx')
    case 'no-name':
      if (now - answer.since >= CONFIRM_NO_NAME_AFTER) return end('bad_domain')
      return fail('4.4.4', CONFIRM_NO_NAME_AFTER, `${words} (to be confirmed)`)
    case 'no-address':
      if (now - answer.since >= CONFIRM_NO_ADDRESS_AFTER) return end('bad_domain')
      return fail('4.4.4', CONFIRM_NO_ADDRESS_AFTER)
    case 'refused-addresses':
      return fail('4.4.6')
    case 'no-answer':
      return fail(answer.isBogus === true ? PROTECTION_CODE : '4.4.3')
    case 'no-usable-host':
      return { ...fail(answer.code), category: 'tls' }
    default:
      return unreachable(answer)
  }
}
