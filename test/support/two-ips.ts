/**
 * The set-up most scenarios share: two warmed pool IPs, the names of the appliance in DNS, one verified sending domain.
 */
import { addVerifiedDomain, apiClient, type ApiClient } from './api-client.ts'
import type { ServeProcess } from './serve-process.ts'
import { startZone, type Zone, type ZoneServer } from './zone.ts'

export const TWO_IPS = {
  version: 1,
  default_pool: 'default',
  pools: {
    default: {
      ips: [
        { address: '127.0.0.11', hostname: 'mta1.sternpost.test', warmed: true },
        { address: '127.0.0.12', hostname: 'mta2.sternpost.test', warmed: true },
      ],
    },
  },
}

export const SENDING_DOMAIN = 'acme.test'
const SPF_OF_BOTH = 'v=spf1 ip4:127.0.0.11 ip4:127.0.0.12 -all'

/** The appliance's own names, and `dest.test` with its MX at `mxAddress`. */
export function applianceZone(mxAddress: string): Zone {
  return {
    'spf.mail.sternpost.test': { TXT: [SPF_OF_BOTH] },
    'rp.mail.sternpost.test': { TXT: ['v=spf1 include:spf.mail.sternpost.test -all'], MX: ['10 mail.sternpost.test'] },
    'mail.sternpost.test': { A: ['127.0.0.1'] },
    'dest.test': { MX: ['10 mx.dest.test'] },
    'mx.dest.test': { A: [mxAddress] },
  }
}

export function startApplianceZone(mxAddress: string): Promise<ZoneServer> {
  return startZone(applianceZone(mxAddress))
}

/** A key, and the sending domain published in the zone and verified. */
export async function prepareSender(
  server: Pick<ServeProcess, 'baseUrl' | 'createKey'>,
  zone: ZoneServer,
): Promise<ApiClient> {
  const api = apiClient(server.baseUrl, await server.createKey('admin'))
  await addVerifiedDomain(api, SENDING_DOMAIN, (records) => {
    // A record that another one brings along is not published itself.
    for (const record of records.filter((record) => record.via === undefined)) {
      zone.set(record.name, record.type === 'CNAME' ? { CNAME: record.value } : { TXT: [record.value] })
    }
  })
  return api
}
