/**
 * Passkeys of people who open the console (http/README.md "Console"): made by whoever is logged in, and a way to log in
 * later. A challenge is answered once, within five minutes, on the host name it was made for; a credential that counts
 * its signatures must count on. The library that checks them is loaded when the first one is made or used.
 */
import type { AuthenticationResponseJSON, RegistrationResponseJSON } from '@simplewebauthn/server'
import { MINUTE, type Clock } from '../base/clock.ts'
import { errorText, ServiceError } from '../base/errors.ts'
import type { OpenedSession, Visitor } from '../http/exchange/logins.ts'
import type { Passkeys, BrowserSite } from '../http/exchange/passkeys.ts'
import type { PasskeyRecord } from '../store/records/console-records.ts'
import type { Store } from '../store/store.ts'

interface PasskeysOptions {
  store: Store
  realClock: Clock
  openFor(personId: string, visitor: Visitor): Promise<OpenedSession>
}

const CHALLENGE_MILLISECONDS = 5 * MINUTE
/** Anybody may ask for one to log in with: it would take thousands a second to push out those that are in use. */
const MOST_CHALLENGES = 10_000
const MOST_PASSKEYS = 20
const MOST_LABEL_CHARACTERS = 100

const library = () => import('@simplewebauthn/server')

export function createPasskeys({ store, realClock, openFor }: PasskeysOptions): Passkeys {
  /** Of strangers, and of people who are logged in. */
  const challenges = { login: createChallenges(realClock), registration: createChallenges(realClock) }
  return {
    of: (person) => store.passkeysOf(person.id),
    async newOptions(person, site) {
      const { generateRegistrationOptions } = await library()
      const options = await generateRegistrationOptions({
        rpName: 'Sternpost',
        rpID: site.host,
        userName: person.name,
        userID: new Uint8Array(Buffer.from(person.id)),
        attestationType: 'none',
        authenticatorSelection: { residentKey: 'required', userVerification: 'required' },
        excludeCredentials: (await store.passkeysOf(person.id)).map(({ id }) => ({ id })),
      })
      challenges.registration.note(options.challenge, `${site.host} ${person.id}`)
      return options
    },
    async add(person, site, response, label) {
      const { verifyRegistrationResponse } = await library()
      if ((await store.passkeysOf(person.id)).length >= MOST_PASSKEYS) {
        throw new ServiceError('conflict', `${MOST_PASSKEYS} passkeys are there: remove one first`)
      }
      const { registrationInfo } = await checked(() =>
        verifyRegistrationResponse({
          response: response as RegistrationResponseJSON,
          expectedChallenge: (challenge) => challenges.registration.take(challenge, `${site.host} ${person.id}`),
          expectedOrigin: site.origin,
          expectedRPID: site.host,
        }),
      )
      if (registrationInfo === undefined) throw refused('it was not verified')
      const { id, publicKey, counter } = registrationInfo.credential
      const passkey = { id, publicKey, counter, site: site.host, personId: person.id, createdAt: realClock.now() }
      await store.addPasskey({ ...passkey, label: label.slice(0, MOST_LABEL_CHARACTERS) })
    },
    remove: (person, id) => store.removePasskey(id, person.id),
    async loginOptions(site) {
      const { generateAuthenticationOptions } = await library()
      const options = await generateAuthenticationOptions({ rpID: site.host, userVerification: 'required' })
      challenges.login.note(options.challenge, site.host)
      return options
    },
    async open(site, response, visitor) {
      const given = response as AuthenticationResponseJSON
      const passkey = typeof given?.id === 'string' ? await store.findPasskey(given.id) : null
      if (passkey === null || passkey.site !== site.host) throw refused('unknown')
      const counter = await newCounter(passkey, site, given)
      if (!(await store.usePasskey(passkey, counter, realClock.now()))) throw refused('used at the same time elsewhere')
      return openFor(passkey.personId, visitor)
    },
  }

  async function newCounter(
    passkey: PasskeyRecord,
    site: BrowserSite,
    response: AuthenticationResponseJSON,
  ): Promise<number> {
    const { verifyAuthenticationResponse } = await library()
    const { id, counter } = passkey
    const { verified, authenticationInfo } = await checked(() =>
      verifyAuthenticationResponse({
        response,
        expectedChallenge: (challenge) => challenges.login.take(challenge, site.host),
        expectedOrigin: site.origin,
        expectedRPID: site.host,
        credential: { id, counter, publicKey: new Uint8Array(passkey.publicKey) },
      }),
    )
    if (!verified) throw refused('the signature is wrong')
    return authenticationInfo.newCounter
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

/** Challenges that wait for their answer; the oldest go first. */
function createChallenges(clock: Clock) {
  const waiting = new Map<string, { purpose: string; until: number }>()
  return {
    note(challenge: string, purpose: string): void {
      waiting.set(challenge, { purpose, until: clock.now() + CHALLENGE_MILLISECONDS })
      const [oldest] = waiting.keys()
      if (waiting.size > MOST_CHALLENGES && oldest !== undefined) waiting.delete(oldest)
    },
    /** Each once. */
    take(challenge: string, purpose: string): boolean {
      const found = waiting.get(challenge)
      waiting.delete(challenge)
      return found !== undefined && found.purpose === purpose && found.until > clock.now()
    },
  }
}
