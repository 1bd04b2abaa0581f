/**
 * What the capture server does for each local part at the simulator's domain (contract.md 11).
 *
 * A `+label` is kept in the address and does not change the behaviour. Every other local part, and every other domain,
 * is delivered. Pure.
 */

export const SIMULATOR_DOMAIN = 'simulator.posthorn.test'

export type SimulatedBehaviour =
  | { kind: 'deliver' } // 250 to everything
  | { kind: 'refuse'; stage: 'rcpt'; code: number; text: string } // this reply, enhanced code in the text

const DELIVER: SimulatedBehaviour = { kind: 'deliver' }

/** A Map, because local parts such as `constructor` come from outside. */
const BEHAVIOUR_BY_LOCAL_PART: ReadonlyMap<string, SimulatedBehaviour> = new Map<string, SimulatedBehaviour>([
  ['delivered', DELIVER],
  [
    'hard',
    {
      kind: 'refuse',
      stage: 'rcpt',
      code: 550,
      text: '5.1.1 The email account that you tried to reach does not exist',
    },
  ],
])

/** `recipient` is the address of RCPT TO. */
export function behaviourOf(recipient: string): SimulatedBehaviour {
  const at = recipient.lastIndexOf('@')
  if (recipient.slice(at + 1).toLowerCase() !== SIMULATOR_DOMAIN) return DELIVER
  const [localPart = ''] = recipient.slice(0, at).toLowerCase().split('+')
  return BEHAVIOUR_BY_LOCAL_PART.get(localPart) ?? DELIVER
}

/** The label of `hard+signup@…`, or null when there is none. */
export function labelOf(recipient: string): string | null {
  const localPart = recipient.slice(0, Math.max(0, recipient.lastIndexOf('@')))
  const plus = localPart.indexOf('+')
  return plus < 0 ? null : localPart.slice(plus + 1)
}
