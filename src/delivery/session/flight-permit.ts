/**
 * Whether messages of one connection may be in a flight, and how many: careful, proven, open, or never again once the
 * host showed that flights are not for it. Pure but for the monotonic clock. delivery/README.md "Flights" has the
 * states and the reasons.
 */
import { SECOND } from '../../base/clock.ts'
import type { SmtpExtensions } from './smtp-extensions.ts'
import type { SendEnd, SessionJob } from './transaction-end.ts'

/** In all messages of a flight, and in one. */
const MOST_BYTES = 256 * 1024
/** A host that was silent for longer may have closed the connection. */
const FRESH_FOR = SECOND
/** So many refusals in flights, and more than this share of them, are too many. */
const MOST_REFUSED = 5
const MOST_REFUSED_SHARE = 0.25
/** Without flights: the one under way, and the one behind it. */
const TAKEN_CAREFULLY = 2

export type FlightPermit = ReturnType<typeof createFlightPermit>

interface FlightTarget {
  inFlight: number
  /** A connection to this host has carried flights lately: this one may begin with one. */
  knowsFlights: boolean
}

export function createFlightPermit(extensions: SmtpExtensions, { inFlight, knowsFlights }: FlightTarget) {
  const isOffered = inFlight > 1 && extensions.isPipelining && extensions.hasChunking
  let state: 'careful' | 'proven' | 'open' = knowsFlights ? 'open' : 'careful'
  let problem: string | null = null
  let heardAt = performance.now()
  let hasFlown = false
  let flown = 0
  let refused = 0

  /** The host takes flights: it did lately, or does over this connection. */
  const isKnown = (): boolean => flown > refused || (knowsFlights && !hasFlown)
  const mayEver = (): boolean => isOffered && problem === null
  const isFresh = (): boolean => performance.now() - heardAt < FRESH_FOR

  return {
    /** The message may be in a flight, now or a little later. */
    isFor: ({ mayFly, mayPipeline, bytes }: SessionJob) =>
      mayEver() && mayFly && mayPipeline && bytes.length <= MOST_BYTES,
    isFresh,
    /** A message may go in a flight now. */
    isOpen: (isFirst: boolean) => mayEver() && state !== 'careful' && (!isFirst || isFresh()),
    hasRoom: (count: number, bytesInFlight: number, bytes: number) =>
      count < (state === 'open' ? inFlight : 1) && (count === 0 || bytesInFlight + bytes <= MOST_BYTES),
    /** Something was heard of the host. */
    refresh: () => void (heardAt = performance.now()),
    begin: () => void (hasFlown = true),
    /** A message went by the careful dialogue. */
    noteCareful(isAccepted: boolean): void {
      if (!isAccepted) state = 'careful'
      else if (state === 'careful') state = isKnown() ? 'open' : 'proven'
    },
    /** A message of a flight has ended. */
    note({ kind }: SendEnd): void {
      flown++
      if (kind === 'accepted') {
        if (state === 'proven') state = 'open'
        return
      }
      refused++
      state = 'careful'
      if (refused < MOST_REFUSED || refused <= flown * MOST_REFUSED_SHARE) return
      problem ??= `it refused ${refused} of ${flown} messages in flights`
    },
    /** Flights are not for this host; null: nothing is wrong. Without any it says nothing of them. */
    ground: (reason: string | null) => void (problem ??= hasFlown ? reason : null),
    problem: () => problem,
    /** Whether the host takes flights; null: this connection carried none, and says nothing of them. */
    takesFlights: () => (hasFlown ? isKnown() && problem === null : null),
    /** Messages that this connection may have: one is ready when a place is free. */
    mostTaken: (hasUnfit: boolean) => (mayEver() && state === 'open' && !hasUnfit ? inFlight + 1 : TAKEN_CAREFULLY),
    /** How many it may have under way; 1: one after the other. */
    most: () => (isOffered ? inFlight : 1),
  }
}
