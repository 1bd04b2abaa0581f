/**
 * What the capture server does for each local part at the simulator's domain (capture/README.md "Simulated
 * recipients"). Pure.
 */
import { MINUTE, SECOND } from '../base/clock.ts'
import { simulatedName } from '../mail/simulator.ts'

export type SimulatedBehaviour =
  | { kind: 'deliver' } // 250 to everything
  | { kind: 'refuse'; code: number; text: string; times: number | null } // to RCPT, so often; null: always
  | { kind: 'dawdle'; milliseconds: number } // 250 to RCPT after so much real time
  | { kind: 'bounce-later' } // 250, then a report of non-delivery
  | { kind: 'complain' } // 250, then a report of abuse
  | { kind: 'visit'; clicks: boolean } // 250, then the pixel is fetched, and the first link

const DELIVER: SimulatedBehaviour = { kind: 'deliver' }
export const NO_SUCH_ACCOUNT = '5.1.1 The email account that you tried to reach does not exist'

function refuse(code: number, text: string, times: number | null = null): SimulatedBehaviour {
  return { kind: 'refuse', code, text, times }
}

/** A Map, because local parts such as `constructor` come from outside. */
const BEHAVIOUR_BY_NAME: ReadonlyMap<string, SimulatedBehaviour> = new Map<string, SimulatedBehaviour>([
  ['delivered', DELIVER],
  ['hard', refuse(550, NO_SUCH_ACCOUNT)],
  ['soft', refuse(452, '4.2.2 The email account that you tried to reach is over quota')],
  ['block', refuse(554, '5.7.1 Service unavailable; client host blocked using blocklist.sternpost.test')],
  ['deferred', refuse(451, '4.3.0 Temporary problem on this side', 2)],
  ['greylisted', refuse(451, '4.7.1 Greylisted, please try again later', 1)],
  // Who the mail is for is known only now: a banner cannot wait for one recipient.
  ['slow', { kind: 'dawdle', milliseconds: MINUTE / 2 }],
  ['late', { kind: 'bounce-later' }],
  ['complained', { kind: 'complain' }],
  ['opened', { kind: 'visit', clicks: false }],
  ['clicked', { kind: 'visit', clicks: true }],
])

/** From delivery to what follows it, in application time: a report, a look at the message. */
export const REPORT_DELAY = 2 * SECOND
/** What is fetched within 2 s counts as a machine (messages/README.md "Hits"). */
export const VISIT_DELAY = 4 * SECOND

/** `recipient` is the address of RCPT TO. */
export function behaviourOf(recipient: string): SimulatedBehaviour {
  return BEHAVIOUR_BY_NAME.get(simulatedName(recipient) ?? '') ?? DELIVER
}

/** The label of `hard+signup@…`, or null when there is none. */
export function labelOf(recipient: string): string | null {
  const localPart = recipient.slice(0, Math.max(0, recipient.lastIndexOf('@')))
  const plus = localPart.indexOf('+')
  return plus < 0 ? null : localPart.slice(plus + 1)
}
