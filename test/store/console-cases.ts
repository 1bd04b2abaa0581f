/** People, login links, sessions and the audit: what every store engine must do with those who open the console. */
import { newIdentifier } from '../../src/base/identifier.ts'
import type {
  NewSession,
  PasskeyRecord,
  PersonRecord,
  PersonRole,
  SessionRecord,
} from '../../src/store/records/console-records.ts'
import type { Store } from '../../src/store/store.ts'
import type { Cases } from './conformance-case.ts'
import { apiKey, NOW } from './store-samples.ts'

let made = 0

const hashOf = (number: number): Buffer => Buffer.alloc(32, number)

function person(name: string, role: PersonRole): PersonRecord {
  return { id: newIdentifier('per', NOW), name, role, createdAt: NOW }
}

function newSession(createdAt = NOW): NewSession {
  made += 1
  const hash = hashOf(100 + made)
  const id = newIdentifier('ses', NOW)
  return { id, hash, address: '192.0.2.1', userAgent: 'Browser', createdAt, expiresAt: NOW + 1_000 }
}

async function logIn(store: Store, name: string, role: PersonRole): Promise<SessionRecord> {
  made += 1
  await store.addLoginLink(person(name, role), { hash: hashOf(made), expiresAt: NOW + 10 }, NOW)
  return (await store.openLinkedSession(hashOf(made), newSession())) as SessionRecord
}

function passkeyOf({ id: personId }: PersonRecord, id: string): Omit<PasskeyRecord, 'usedAt'> {
  const publicKey = Buffer.from('key')
  return { id, personId, site: 'mail.acme.com', publicKey, counter: 0, label: 'Browser', createdAt: NOW }
}

export const console: Cases = {
  'a passkey opens sessions of its person, counts on, and goes with the person': async (t, { store }) => {
    const ada = person('ada', 'owner')
    const bob = person('bob', 'reader')
    for (const [number, one] of [ada, bob].entries()) {
      await store.addLoginLink(one, { hash: hashOf(60 + number), expiresAt: NOW + 10 }, NOW)
    }
    const passkey = passkeyOf(bob, 'credential')
    t.equal(await store.addPasskey(passkey), true)
    t.equal(await store.addPasskey({ ...passkeyOf(ada, 'credential') }), false, 'an id is there once')
    const found = await store.findPasskey('credential')
    t.match(found, { ...passkey, publicKey: Uint8Array, usedAt: null })
    t.same(Buffer.from(found?.publicKey ?? []), passkey.publicKey)
    t.equal(await store.findPasskey('other'), null)
    t.same((await store.passkeysOf(ada.id)).length, 0)
    const times = { at: NOW + 5, latestUse: NOW + 20 }
    const use = (challengedAt: number, counter = 7): Promise<boolean> =>
      store.usePasskey({ ...passkey, counter, usedAt: null }, { ...times, counter: 7, challengedAt })
    t.same((await Promise.all([use(NOW, 0), use(NOW, 0)])).toSorted(), [false, true], 'of two at once one')
    t.match(await store.passkeysOf(bob.id), [{ counter: 7, usedAt: NOW + 5 }])
    const challenged = [await use(NOW + 5), await use(NOW + 9), await use(NOW + 9)]
    t.same(challenged, [false, true, false], 'a challenge is from after the last use')
    const ahead = [await use(NOW + 20), await use(NOW + 11), await use(NOW + 21), await use(NOW + 11)]
    t.same(ahead, [true, false, true, true], 'a last use that is too far ahead is none')
    t.match(await store.openPersonSession(bob.id, newSession()), { person: { name: 'bob' }, keyId: null })
    t.equal(await store.removePasskey('credential', ada.id), false, 'that of somebody else')
    await store.removePerson(bob.id)
    t.equal(await store.findPasskey('credential'), null)
    t.equal(await store.openPersonSession(bob.id, newSession()), null)
    await store.addPasskey(passkeyOf(ada, 'own'))
    t.equal(await store.removePasskey('own', ada.id), true)
    t.equal(await store.removePasskey('own', ada.id), false)
    for (const id of ['one', 'two']) await store.addPasskey(passkeyOf(ada, id))
    t.equal(await store.removePasskeys(ada.id), 2)
    t.same(await store.passkeysOf(ada.id), [])
  },
  'a link opens one session, in its time': async (t, { store }) => {
    const ada = person('ada', 'operator')
    t.same(await store.addLoginLink(ada, { hash: hashOf(1), expiresAt: NOW + 10 }, NOW), ada)
    const link = { hash: hashOf(2), expiresAt: NOW + 10 }
    const again = await store.addLoginLink({ ...person('ada', 'owner'), role: null }, link, NOW)
    t.same(again, ada, 'whoever is known keeps the role')
    const other = store.addLoginLink(person('ada', 'owner'), { ...link, hash: hashOf(5) }, NOW)
    await t.rejects(other, { message: /conflict.*ada is operator already/ })
    t.match(await store.addLoginLink({ ...person('eve', 'owner'), role: null }, { ...link, hash: hashOf(6) }, NOW), {
      role: 'owner',
    })
    const session = newSession()
    const { hash, ...rest } = session
    const opened = { ...rest, person: ada, keyId: null, usedAt: NOW }
    t.same(await store.openLinkedSession(hashOf(1), session), opened)
    t.same(await store.findSession(hash), opened)
    t.equal(await store.openLinkedSession(hashOf(1), newSession()), 'used')
    t.equal(await store.openLinkedSession(hashOf(2), newSession(NOW + 10)), 'expired')
    t.equal(await store.openLinkedSession(hashOf(3), newSession()), 'unknown')
    const both = await Promise.all([newSession(), newSession()].map((each) => store.openLinkedSession(hashOf(2), each)))
    t.equal(both.filter((each) => each === 'used').length, 1, 'of two at once one')
    await store.addLoginLink(ada, { hash: hashOf(4), expiresAt: NOW + 99 }, NOW + 11)
    t.equal(await store.openLinkedSession(hashOf(1), newSession()), 'unknown', 'what has expired is forgotten')
  },
  'a session is used, listed and ended': async (t, { store }) => {
    const first = await logIn(store, 'ada', 'owner')
    const second = await logIn(store, 'bob', 'reader')
    const key = apiKey()
    await store.addApiKey(key, Buffer.alloc(32, 9), null)
    const third = await store.openKeySession(key.id, newSession())
    t.match(third, { person: null, keyId: key.id })
    await store.noteSessionUse(second.id, NOW + 5)
    await store.noteSessionUse(second.id, NOW + 3)
    t.match(await store.listSessions(), [{ id: second.id, usedAt: NOW + 5 }, {}, {}])
    t.equal(await store.endSession(first.id), true)
    for (const id of [first.id, newIdentifier('ses', NOW), 'x', '']) t.equal(await store.endSession(id), false)
    await store.forgetSessions(NOW, NOW + 1)
    t.same(
      (await store.listSessions()).map(({ id }) => id),
      [second.id],
      'those that nobody used',
    )
    await store.forgetSessions(NOW + 1_000, 0)
    t.same(await store.listSessions(), [], 'those whose time is over')
  },
  'there is always an owner': async (t, { store }) => {
    const ada = (await logIn(store, 'ada', 'owner')).person as PersonRecord
    const bob = (await logIn(store, 'bob', 'reader')).person as PersonRecord
    await t.rejects(store.removePerson(ada.id), { message: /conflict.*ada is the last owner/ })
    await t.rejects(store.changeRole(ada.id, 'reader'), { message: /conflict/ })
    t.match(await store.changeRole(ada.id, 'owner'), { role: 'owner' })
    t.match(await store.changeRole(bob.id, 'owner'), { name: 'bob', role: 'owner' })
    t.same(await store.removePerson(ada.id), ada)
    t.match(await store.listPeople(), [{ name: 'bob', role: 'owner' }])
    t.equal((await store.listSessions()).length, 1, 'sessions go with their person')
    for (const id of [ada.id, 'x']) {
      t.equal(await store.removePerson(id), null)
      t.equal(await store.changeRole(id, 'owner'), null)
    }
  },
  'the audit is listed newest first, and searched': async (t, { store }) => {
    const entry = { at: NOW, actor: 'ada', act: 'message canceled', facts: { id: 'MSG_1' }, requestId: 'req_1' }
    for (let number = 1; number <= 5; number++) {
      await store.addAudit({ ...entry, at: NOW + number, actor: number % 2 === 0 ? 'bob' : 'ada' })
    }
    const first = await store.listAudit({ text: null, limit: 2, after: null })
    t.match(first.entries, [
      { at: NOW + 5, facts: { id: 'MSG_1' } },
      { at: NOW + 4, actor: 'bob' },
    ])
    const second = await store.listAudit({ text: null, limit: 2, after: first.next })
    t.match(second.entries, [{ at: NOW + 3 }, { at: NOW + 2 }])
    t.equal((await store.listAudit({ text: 'BOB', limit: 10, after: null })).entries.length, 2)
    t.equal((await store.listAudit({ text: 'msg_1', limit: 10, after: null })).entries.length, 5)
    t.equal((await store.listAudit({ text: '%', limit: 10, after: null })).entries.length, 0)
    await t.rejects(store.listAudit({ text: null, limit: 1, after: 'x' }), { message: /next_cursor/ })
    t.equal(await store.forgetAudit(NOW + 4, 2), 2)
    t.equal(await store.forgetAudit(NOW + 4, 2), 1)
    t.equal((await store.listAudit({ text: null, limit: 10, after: null })).entries.length, 2)
  },
}
