/**
 * Passkeys of people who open the console (http/README.md "Console"): made by whoever is logged in, and a way to log in
 * later. A challenge is answered within five minutes, on the host name it was made for, by any node; a passkey answers
 * each once, and one that counts its signatures must count on. The library that checks them is loaded when the first one
 * is made or used.
 */
import type { AuthenticationResponseJSON, RegistrationResponseJSON } from '@simplewebauthn/server'
import type { Clock } from '../base/clock.ts'
import { errorText, ServiceError } from '../base/errors.ts'
import type { KeyRing } from '../base/key-ring.ts'
import { unknownPerson, type OpenedSession, type Person, type Visitor } from '../http/exchange/logins.ts'
import type { Passkeys, BrowserSite } from '../http/exchange/passkeys.ts'
import type { PasskeyRecord, PasskeyUse } from '../store/records/console-records.ts'
import type { Store } from '../store/store.ts'
import { createPasskeyChallenges, FARTHEST_USE, type PasskeyChallenges } from './passkey-challenges.ts'

interface PasskeysOptions {
  store: Store
  realClock: Clock
  keyRing: Pick<KeyRing, 'key'>
  openFor(personId: string, visitor: Visitor): Promise<OpenedSession>
}

/** What a challenge may be answered to. */
const LOGIN = 'login'
const REGISTRATION = 'registration'
const MOST_PASSKEYS = 20
const MOST_LABEL_CHARACTERS = 100

const library = () => import('@simplewebauthn/server')

export function createPasskeys({ store, realClock, keyRing, openFor }: PasskeysOptions): Passkeys {
  const challenges = createPasskeyChallenges({ clock: realClock, keyRing })
  const prove = createProof({ clock: realClock, challenges })
  const find = async (personId: string): Promise<Person> => {
    const person = (await store.listPeople()).find(({ id }) => id === personId)
    if (person === undefined) throw unknownPerson(personId)
    return person
  }
  return {
    of: (person) => store.passkeysOf(person.id),
    ofPerson: async (personId) => store.passkeysOf((await find(personId)).id),
    async removeAll(personId) {
      const person = await find(personId)
      return { person, removed: await store.removePasskeys(person.id) }
    },
    async newOptions(person, site) {
      const { generateRegistrationOptions } = await library()
      return generateRegistrationOptions({
        challenge: challenges.make(REGISTRATION, site.host, person.id),
        rpName: 'Sternpost',
        rpID: site.host,
        userName: person.name,
        userID: new Uint8Array(Buffer.from(person.id)),
        attestationType: 'none',
        authenticatorSelection: { residentKey: 'required', userVerification: 'required' },
        excludeCredentials: (await store.passkeysOf(person.id)).map(({ id }) => ({ id })),
      })
    },
    async add(person, site, response, label) {
      const { verifyRegistrationResponse } = await library()
      if ((await store.passkeysOf(person.id)).length >= MOST_PASSKEYS) {
        throw new ServiceError('conflict', `${MOST_PASSKEYS} passkeys are there: remove one first`)
      }
      const { registrationInfo } = await checked(() =>
        verifyRegistrationResponse({
          response: response as RegistrationResponseJSON,
          expectedChallenge: (given) => challenges.madeAt(given, REGISTRATION, site.host, person.id) !== null,
          expectedOrigin: site.origin,
          expectedRPID: site.host,
        }),
      )
      if (registrationInfo === undefined) throw refused('it was not verified')
      const { id, publicKey, counter } = registrationInfo.credential
      const passkey = { id, publicKey, counter, site: site.host, personId: person.id, createdAt: realClock.now() }
      const isNew = await store.addPasskey({ ...passkey, label: label.slice(0, MOST_LABEL_CHARACTERS) })
      if (!isNew) throw new ServiceError('conflict', 'this passkey is there already')
    },
    remove: (person, id) => store.removePasskey(id, person.id),
    async loginOptions(site) {
      const { generateAuthenticationOptions } = await library()
      const challenge = challenges.make(LOGIN, site.host)
      return generateAuthenticationOptions({ challenge, rpID: site.host, userVerification: 'required' })
    },
    async open(site, response, visitor) {
      const given = response as AuthenticationResponseJSON
      const passkey = typeof given?.id === 'string' ? await store.findPasskey(given.id) : null
      if (passkey === null || passkey.site !== site.host) throw refused('unknown')
      if (!(await store.usePasskey(passkey, await prove(passkey, site, given)))) {
        throw refused('the challenge was answered before, or the passkey was used at the same time elsewhere')
      }
      return openFor(passkey.personId, visitor)
    },
  }
}

/** What is proven by the answer of a browser. */
function createProof({ clock, challenges }: { clock: Clock; challenges: PasskeyChallenges }) {
  return async (
    passkey: PasskeyRecord,
    site: BrowserSite,
    response: AuthenticationResponseJSON,
  ): Promise<PasskeyUse> => {
    const { verifyAuthenticationResponse } = await library()
    let challengedAt: number | null = null
    const { id, counter } = passkey
    const { verified, authenticationInfo } = await checked(() =>
      verifyAuthenticationResponse({
        response,
        expectedChallenge(given) {
          challengedAt = challenges.madeAt(given, LOGIN, site.host)
          return challengedAt !== null
        },
        expectedOrigin: site.origin,
        expectedRPID: site.host,
        credential: { id, counter, publicKey: new Uint8Array(passkey.publicKey) },
      }),
    )
    if (!verified || challengedAt === null) throw refused('the signature is wrong')
    const at = clock.now()
    return { counter: authenticationInfo.newCounter, challengedAt, at, latestUse: at + FARTHEST_USE }
  }
}

/** The library throws for whatever is not as it must be. */
async function checked<Result>(check: () => Promise<Result>): Promise<Result> {
  try {
    return await check()
  } catch (thrown) {
    throw refused(errorText(thrown))
  }
}

const refused = (why: string): ServiceError => new ServiceError('unauthorized', `passkey: ${why}`)
