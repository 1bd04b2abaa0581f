/**
 * What a new mail server finds outside, for a machine without a network: the DNS, at port 53 of loopback, which also says
 * what stands in a zone file once that is there, and an authority for certificates (Pebble).
 *
 * `world.ts FOLDER ZONE_FILE HOST_NAME IP`: into the folder go the PEM files `authority.pem` (vouches for the door of the
 * authority) and `issuer.pem` (for what it issues), and, when all is ready, `directory`, its URL. Ends by SIGTERM.
 */
import { readFileSync, watchFile, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { startPebble } from '../../support/pebble.ts'
import { startZone, type ZoneServer } from '../../support/zone.ts'

const DNS_PORT = 53
const LOOK_EVERY = 100
// As `setup` writes it: a whole name, its time, class, type, data.
const RECORD = /^(\S+)\. \d+ IN (A|MX|TXT|CNAME) (.*)$/gm
// A character string of RFC 1035 §5.1, without its quotation marks.
const STRING = /"((?:[^"\\]|\\.)*)"/g

const [folder = '', zoneFile = '', host = '', ip = ''] = process.argv.slice(2)
const reverseName = `${ip.split('.').toReversed().join('.')}.in-addr.arpa`
const zone = await startZone({ [host]: { A: [ip] }, [reverseName]: { PTR: [host] } }, DNS_PORT)
watchFile(zoneFile, { interval: LOOK_EVERY }, ({ size }) => {
  if (size > 0) publish(zone, readFileSync(zoneFile, 'utf8'))
})
const ends: (() => unknown)[] = []
const pebble = await startPebble(
  { teardown: (end) => ends.push(end) },
  { httpPort: 80, tlsPort: 443, dnsServer: zone.server },
)
process.on('SIGTERM', () => void Promise.all(ends.map((end) => end())).then(() => process.exit()))
writeFileSync(join(folder, 'authority.pem'), pebble.authority)
writeFileSync(join(folder, 'issuer.pem'), await pebble.issuer())
writeFileSync(join(folder, 'directory'), pebble.directory)

function publish(server: ZoneServer, text: string): void {
  const names = new Map<string, { A: string[]; MX: string[]; TXT: string[]; CNAME?: string }>()
  for (const [, name = '', type, data = ''] of text.matchAll(RECORD)) {
    const records = names.get(name) ?? { A: [], MX: [], TXT: [] }
    names.set(name, records)
    if (type === 'CNAME') records.CNAME = withoutDot(data)
    else if (type === 'TXT') records.TXT.push(joinedStrings(data))
    else if (type === 'MX') records.MX.push(withoutDot(data))
    else records.A.push(data)
  }
  for (const [name, records] of names) server.set(name, records)
}

const withoutDot = (name: string): string => name.replace(/\.$/, '')

const joinedStrings = (data: string): string =>
  [...data.matchAll(STRING)].map(([, text = '']) => text.replaceAll(/\\(.)/g, '$1')).join('')
