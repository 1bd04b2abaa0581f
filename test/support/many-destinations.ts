/**
 * A server with two IPs and several destinations that all lead to one sink: as many connections as a test of crashes
 * needs, with no limit of pace in their way.
 */
import { apiClient, type ApiClient } from './api-client.ts'
import { startCountingSink, type CountingSink, type CountingSinkOptions } from './counting-sink.ts'
import { startServe, type ServeOptions, type ServeProcess } from './serve-process.ts'
import { applianceZone, prepareSender, TWO_IPS } from './two-ips.ts'
import { startZone, type Zone } from './zone.ts'

export interface ManyDestinations {
  sink: CountingSink
  server: ServeProcess
  api: ApiClient
  /** Of the API; may do everything. */
  key: string
  domains: string[]
  /** `IP:port` of the DNS server that knows them. */
  dnsServer: string
}

/** Each has a path from both IPs, and a path begins with few connections. */
const DESTINATIONS = 30
/** Of providers.yaml: no limit of pace. */
export const FAST = { rate: '10000/second', connection_rate: '10000/second' }

/** The appliance, and domains whose mail goes to this address. */
export function zoneOf(domains: readonly string[], mxAddress = '127.0.0.1'): Zone {
  return {
    ...applianceZone(mxAddress),
    ...Object.fromEntries(
      domains.flatMap((domain) => [
        [domain, { MX: [`10 mx.${domain}`] }],
        [`mx.${domain}`, { A: [mxAddress] }],
      ]),
    ),
  }
}

export async function startManyDestinations(
  t: { teardown(clean: () => unknown): void },
  options: Pick<ServeOptions, 'settings' | 'dataFolder'> &
    Pick<CountingSinkOptions, 'answerDelayMilliseconds' | 'hasChunking'> & { inFlight?: number; destinations?: number },
): Promise<ManyDestinations> {
  const { settings, dataFolder, inFlight = 4, destinations = DESTINATIONS, ...ofSink } = options
  const domains = Array.from({ length: destinations }, (_, index) => `d${index}.test`)
  const sink = await startCountingSink(ofSink)
  t.teardown(() => sink.close())
  const zone = await startZone(zoneOf(domains))
  t.teardown(() => zone.close())
  const server = await startServe({
    dnsServer: zone.server,
    deliveryPort: sink.port,
    pools: TWO_IPS,
    files: { 'providers.d/50-fast.yaml': { default: { ...FAST, in_flight: inFlight } } },
    settings: { ...settings, api: { requests: 0, recipients: 0 } },
    ...(dataFolder === undefined ? {} : { dataFolder }),
  })
  t.teardown(() => server.remove())
  await prepareSender(server, zone)
  const key = await server.createKey('admin')
  return { sink, server, api: apiClient(server.baseUrl, key), key, domains, dnsServer: zone.server }
}
