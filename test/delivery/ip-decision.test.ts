import t from 'tap'
import { HOUR } from '../../src/base/clock.ts'
import { decideIp, type IpDecisionRequest } from '../../src/delivery/settle/ip-decision.ts'

const NOW = Date.UTC(2026, 10, 21)
const [A, B, C] = ['192.0.2.1', '192.0.2.2', '192.0.2.3'] as const
const POOL = [A, B, C]
const FRESH: IpDecisionRequest['message'] = {
  attempts: 0,
  pathFailures: 0,
  lastIp: null,
  keepIpUntil: null,
  avoidIps: [],
}

interface Case {
  outcome?: IpDecisionRequest['outcome']
  category?: IpDecisionRequest['category']
  ip?: string | null
  message?: Partial<IpDecisionRequest['message']>
  poolIps?: string[]
  expected: { keepIpUntil: number | null; avoidIps?: string[] }
}

const CASES: Record<string, Case> = {
  'a first refusal keeps the IP for the second attempt': { category: 'temporary', expected: { keepIpUntil: 0 } },
  'the second refusal sets it free': {
    category: 'temporary',
    message: { attempts: 1, lastIp: A },
    expected: { keepIpUntil: null },
  },
  'a rate limit is a refusal like others': { category: 'rate', expected: { keepIpUntil: 0 } },
  'a lost connection too': { category: 'connection_lost', expected: { keepIpUntil: 0 } },
  'greylisting waits for the IP, four hours at most': {
    category: 'greylist',
    expected: { keepIpUntil: NOW + 4 * HOUR },
  },
  'greylisted again it waits until four hours after the first time': {
    category: 'greylist',
    message: { attempts: 1, lastIp: A, keepIpUntil: NOW + HOUR },
    expected: { keepIpUntil: NOW + HOUR },
  },
  'greylisted after four hours it is free': {
    category: 'greylist',
    message: { attempts: 5, lastIp: A, keepIpUntil: NOW },
    expected: { keepIpUntil: null },
  },
  'greylisted from another IP it begins anew': {
    category: 'greylist',
    message: { attempts: 5, lastIp: B, keepIpUntil: NOW - 1 },
    expected: { keepIpUntil: NOW + 4 * HOUR },
  },
  'a block of the IP avoids it': { category: 'ip_block', expected: { keepIpUntil: null, avoidIps: [A] } },
  'so does a missing reverse name': { category: 'no_ptr', expected: { keepIpUntil: null, avoidIps: [A] } },
  'a further block avoids both': {
    category: 'ip_block',
    message: { attempts: 1, avoidIps: [B] },
    expected: { keepIpUntil: null, avoidIps: [B, A] },
  },
  'when all would be avoided none is': {
    category: 'ip_block',
    message: { attempts: 2, avoidIps: [B, C] },
    expected: { keepIpUntil: null, avoidIps: [] },
  },
  'an only IP is not avoided': { category: 'ip_block', poolIps: [A], expected: { keepIpUntil: null, avoidIps: [] } },
  'eight are avoided at most': {
    category: 'ip_block',
    message: { avoidIps: ['1', '2', '3', '4', '5', '6', '7', '8'] },
    expected: { keepIpUntil: null, avoidIps: ['2', '3', '4', '5', '6', '7', '8', A] },
  },
  'a block of the domain does not rotate, whatever the attempt': {
    category: 'domain_block',
    message: { attempts: 4, lastIp: A },
    expected: { keepIpUntil: 0 },
  },
  'nor does spam': { category: 'spam_content', message: { attempts: 4 }, expected: { keepIpUntil: 0 } },
  'nor does failed authentication': { category: 'auth_failed', message: { attempts: 4 }, expected: { keepIpUntil: 0 } },
  'a lost answer to the dot keeps the IP': {
    outcome: 'ambiguous',
    category: 'ambiguous',
    message: { attempts: 4 },
    expected: { keepIpUntil: 0 },
  },
  'a path failure keeps the IP': { outcome: 'path-failed', expected: { keepIpUntil: 0 } },
  'the third in a row sets it free': {
    outcome: 'path-failed',
    message: { pathFailures: 2, lastIp: A, keepIpUntil: NOW + HOUR },
    expected: { keepIpUntil: null },
  },
  'a path failure leaves what is waited for': {
    outcome: 'path-failed',
    message: { attempts: 1, lastIp: A, keepIpUntil: NOW + HOUR },
    expected: { keepIpUntil: NOW + HOUR },
  },
  'without an IP nothing is decided': {
    outcome: 'path-failed',
    category: 'dns',
    ip: null,
    message: { keepIpUntil: NOW + HOUR, lastIp: A, avoidIps: [B] },
    expected: { keepIpUntil: NOW + HOUR, avoidIps: [B] },
  },
}

for (const [name, { expected, ...given }] of Object.entries(CASES)) {
  t.test(name, async (t) => {
    const { outcome = 'deferred', category = null, ip = A, message = {}, poolIps = POOL } = given
    const decision = decideIp({
      outcome,
      category,
      ip,
      poolIps: () => poolIps,
      now: NOW,
      message: { ...FRESH, ...message },
    })
    t.strictSame(decision, { avoidIps: [], ...expected })
  })
}
