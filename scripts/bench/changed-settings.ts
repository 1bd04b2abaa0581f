/**
 * The settings the bench changes from the defaults, and prints: limits that would otherwise be the result. Names,
 * addresses and the loopback network of a run are not listed. Messages per connection stay at their default: a path
 * learns from the ends of connections how many it may have.
 */
const UNLIMITED = { rate: '1000000/second', connection_rate: '1000000/minute' }

export const CHANGED_SETTINGS = {
  'providers.yaml': { default: { connections: 20, ...UNLIMITED } },
  // One sending domain leaves a tenth of the connections to others: so it has 1,000, as many as every system.
  'sternpost.yaml': { api: { requests: 0, recipients: 0 }, delivery: { connections_max: 1_112 } },
}

/** So many connections a path, so many messages of each in flight; the rest as above. */
export function providersWith(connections: number, inFlight: number): Record<string, unknown> {
  return { default: { ...CHANGED_SETTINGS['providers.yaml'].default, connections, in_flight: inFlight } }
}
