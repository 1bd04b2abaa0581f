/**
 * The store dies under load: the process must end by itself, so that the service manager starts it anew.
 */
import { closeSync, openSync, statSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { scriptedMx } from '../support/scripted-mx.ts'
import { startServe } from '../support/serve-process.ts'
import { prepareSender, SENDING_DOMAIN, startApplianceZone, TWO_IPS } from '../support/two-ips.ts'
import { until } from '../support/until.ts'

const MESSAGES = 20
/** Shorter than the time that a stop gives to mail on its way. */
const LONGEST_END = 20_000

t.test('a damaged database ends the process with 1, also while mail is on its way', async (t) => {
  const mx = await scriptedMx({ script: { dot: 'silence' } })
  const zone = await startApplianceZone('127.0.0.1')
  const server = await startServe({ dnsServer: zone.server, deliveryPort: mx.port, pools: TWO_IPS })
  t.teardown(async () => {
    await server.remove()
    await mx.close()
    await zone.close()
  })
  const api = await prepareSender(server, zone)
  for (let number = 0; number < MESSAGES; number++) {
    await api.post('/email/send', {
      from: `news@${SENDING_DOMAIN}`,
      to: `user${number}@dest.test`,
      subject: 'Hello',
      text: 'Hello',
    })
  }
  await until('mail is on its way', () => mx.messages.length > 0)
  for (const name of ['sternpost.db', 'sternpost.db-wal']) overwrite(join(server.databaseFolder, name))
  const look = async (): Promise<number | null> => {
    await api.get('/email').catch(() => undefined)
    return server.exitCode()
  }
  t.equal(await until('the process has ended', look, LONGEST_END), 1)
})

function overwrite(path: string): void {
  const file = openSync(path, 'r+')
  writeSync(file, Buffer.alloc(statSync(path).size, 'Z'), 0)
  closeSync(file)
}
