/** Links to the DNS records of one domain: for seven days, for that domain, as they were made. */
import t from 'tap'
import { DAY, SECOND } from '../../src/base/clock.ts'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { createDomainLinks } from '../../src/senders/domain-links.ts'
import { manualClock } from '../support/manual-clock.ts'

const NOW = Date.UTC(2026, 10, 21, 12)

t.test('a link is valid for seven days, and for what it was made for', async (t) => {
  const clock = manualClock(NOW)
  const links = createDomainLinks({ clock, keyRing: createKeyRing(Buffer.alloc(32, 1)) })
  const { path, expiresAt } = links.make('acme.com')
  const [domain = '', signed = ''] = path.split('/')
  t.equal(expiresAt, NOW + 7 * DAY)
  t.equal(links.isValid(domain, signed), true)
  const stranger = createDomainLinks({ clock, keyRing: createKeyRing(Buffer.alloc(32, 2)) })
  t.equal(stranger.isValid(domain, signed), false, 'another server')
  for (const [name, wrong] of [
    ['other.com', signed],
    ['ACME.com', signed],
    [domain, `${signed}A`],
    [domain, signed.slice(0, -1)],
    [domain, `9${signed.slice(1)}`],
    [domain, ''],
    [domain, '-'],
    [domain, `${signed.slice(0, 11)}${'='.repeat(22)}`],
  ] as const) {
    t.equal(links.isValid(name, wrong), false, `${name} ${wrong}`)
  }
  await clock.advance(7 * DAY - SECOND)
  t.equal(links.isValid(domain, signed), true)
  await clock.advance(SECOND)
  t.equal(links.isValid(domain, signed), false, 'it is over')
})
