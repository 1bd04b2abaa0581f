/** Challenges of passkeys: what strangers ask for takes none from people who are logged in. */
import t from 'tap'
import type { ServiceError } from '../../src/base/errors.ts'
import { createPasskeys } from '../../src/operations/passkeys.ts'
import { manualClock } from '../support/manual-clock.ts'
import { testStore } from '../senders/sender-parts.ts'

t.test('strangers who ask for challenges push out none of those who add a passkey', async (t) => {
  const passkeys = createPasskeys({
    store: await testStore(t),
    realClock: manualClock(),
    openFor: () => Promise.reject(new Error('nobody logs in here')),
  })
  const site = { origin: 'https://mail.example.net', host: 'mail.example.net' }
  const person = { id: 'per_01m89nqxx39jnxwj6c6hrh320g', name: 'ada', role: 'owner' as const, createdAt: 0 }
  const { challenge } = (await passkeys.newOptions(person, site)) as { challenge: string }
  for (let asked = 0; asked < 10_001; asked++) await passkeys.loginOptions(site)
  const answer = (given: string): object => {
    const clientData = { type: 'webauthn.create', challenge: given, origin: 'https://evil.example' }
    const clientDataJSON = Buffer.from(JSON.stringify(clientData)).toString('base64url')
    return { id: 'AAAA', rawId: 'AAAA', type: 'public-key', response: { clientDataJSON, attestationObject: 'AAAA' } }
  }
  const refusal = (given: string): Promise<unknown> =>
    passkeys.add(person, site, answer(given), '').then(
      () => 'none',
      (thrown: unknown) => (thrown as ServiceError).details,
    )
  t.match(await refusal('AAAA'), /challenge/, 'one that nobody gave')
  t.match(await refusal(challenge), /origin/, 'the challenge is there')
  t.match(await refusal(challenge), /challenge/, 'once')
})
