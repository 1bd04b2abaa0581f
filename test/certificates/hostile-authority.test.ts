/**
 * An authority that answers what it should not: each answer is a sentence at the name and a try later, never a crash, a
 * request elsewhere, or a certificate that our doors could not use.
 */
import { once } from 'node:events'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import { DAY, MINUTE } from '../../src/base/clock.ts'
import type { DoorRule, PassedAnswer } from '../support/authority-door.ts'
import { skipWithoutPebble } from '../support/pebble.ts'
import { createTestAuthority } from '../support/test-authority.ts'
import { HOST, startScene } from './certificate-scene.ts'

t.setTimeout(120_000)

const problemAnswer = (type: string, detail: string, headers = {}): PassedAnswer => ({
  status: 403,
  headers: { 'content-type': 'application/problem+json', ...headers },
  body: JSON.stringify({ type: `urn:ietf:params:acme:error:${type}`, detail }),
})

const FIRST_ERROR = 400

t.test('what an authority answers is believed in nothing', { skip: skipWithoutPebble }, async (t) => {
  const elsewhere = createTestAuthority('Elsewhere')
  t.teardown(() => elsewhere.close())
  let askedElsewhere = 0
  const { chain: otherChain, key } = elsewhere.issue([HOST, 'localhost'])
  const other = createServer({ cert: otherChain, key }, (_request, response) => {
    askedElsewhere += 1
    response.end('{}')
  }).listen(0, '127.0.0.1')
  t.teardown(() => other.close())
  await once(other, 'listening')
  const otherUrl = `https://127.0.0.1:${(other.address() as AddressInfo).port}/`

  let rule: DoorRule = (_asked, pass) => pass()
  const scene = await startScene(t, { rule: () => (asked, pass) => rule(asked, pass) })
  const { clock, certificates, record, serial } = scene
  await certificates.run()
  let before = await serial()

  /** Where the path fits, another answer; a refused nonce, which is asked again, stays what it is. */
  const answering =
    (path: RegExp, change: (answer: PassedAnswer) => PassedAnswer | null): DoorRule =>
    async (asked, pass) => {
      const answer = await pass()
      return path.test(asked.path) && answer.status < FIRST_ERROR ? change(answer) : answer
    }
  const cases: { what: string; rule: DoorRule; problem: RegExp; wait?: number }[] = [
    {
      what: 'a redirect is not followed',
      rule: answering(/^\/dir$/, () => ({ status: 302, headers: { location: otherUrl }, body: '' })),
      problem: /^the authority answered 302$/,
    },
    {
      what: 'a body without end',
      rule: answering(/^\/dir$/, () => ({ status: 200, headers: {}, body: ' '.repeat(2 ** 21) })),
      problem: /the answer has more than 1048576 bytes/,
    },
    {
      what: 'a page in place of JSON',
      rule: answering(/^\/dir$/, () => ({ status: 200, headers: {}, body: '<html>Welcome</html>' })),
      problem: /^the authority did not answer: Unable to locate API resource URL/,
    },
    {
      what: 'JSON of another form',
      rule: answering(/^\/my-order\//, () => ({ status: 200, headers: {}, body: '{"status":"pending"}' })),
      problem: /^the authority's answer cannot be read: /,
    },
    {
      what: 'an order on another host, within our network',
      rule: answering(/^\/order-plz$/, (answer) => ({ ...answer, headers: { ...answer.headers, location: otherUrl } })),
      problem: /^the authority did not answer: /,
    },
    {
      what: 'the same without TLS',
      rule: answering(/^\/order-plz$/, (answer) => ({
        ...answer,
        headers: { ...answer.headers, location: 'http://localhost/' },
      })),
      problem: /http:\/\/localhost\/ is no https URL/,
    },
    {
      what: 'a chain that is not for our key',
      rule: answering(/^\/certZ\//, (answer) => ({ ...answer, body: otherChain })),
      problem: /^the certificate cannot be used: .*key/,
    },
    {
      what: 'a chain that is none',
      rule: answering(/^\/certZ\//, (answer) => ({
        ...answer,
        body: '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n',
      })),
      problem: /^the certificate cannot be used: /,
    },
    {
      what: 'Retry-After of a year',
      rule: answering(/^\/order-plz$/, () =>
        problemAnswer('rateLimited', 'too many certificates', { 'retry-after': String(365 * 86_400) }),
      ),
      problem: /^too many certificates\. Nothing to do: it is asked again when it allows it$/,
      wait: 7 * DAY,
    },
    {
      what: 'a CAA record that names another authority',
      rule: answering(/^\/finalize-order\//, () => problemAnswer('caa', 'CAA forbids it')),
      problem: /^CAA forbids it\. Fix: let the CAA record of mail\.sternpost\.test name this authority$/,
    },
    {
      what: 'a sentence without end, for a terminal',
      rule: answering(/^\/order-plz$/, () => problemAnswer('constructor', `\u001b[2J\n${'x'.repeat(10_000)}`)),
      problem: /^ \[2J x{490,500}$/,
    },
  ]
  for (const { what, rule: wanted, problem, wait } of cases) {
    rule = wanted
    await certificates.renew(HOST, false)
    await certificates.run()
    const { problem: told, nextTryAt = 0, failures = 0 } = (await record()) ?? {}
    t.match(told, problem, what)
    t.ok(failures > 0, what)
    t.ok(nextTryAt - clock.now() >= MINUTE, what)
    if (wait !== undefined) t.equal(nextTryAt - clock.now(), wait, what)
    t.equal(await serial(), before, `${what}: the one before is kept`)
    rule = (_asked, pass) => pass()
    for (let tries = 0; tries < 3 && (await serial()) === before; tries += 1) {
      await clock.advance(8 * DAY)
      await certificates.run()
    }
    t.not(await serial(), before, `${what}: with honest answers all is well again`)
    before = await serial()
  }
  t.equal(askedElsewhere, 0, 'nobody else was asked')
  t.equal((await certificates.pairs()).length, 1)
})

t.test('who may not ask for long is asked elsewhere meanwhile', { skip: skipWithoutPebble }, async (t) => {
  const fallback: string[] = []
  let asked = 0
  const scene = await startScene(t, {
    fallback,
    rule(pebble) {
      fallback.push(pebble.directory)
      return async ({ path }, pass) => {
        if (path !== '/order-plz') return pass()
        asked += 1
        return problemAnswer('rateLimited', 'too many', { 'retry-after': '100000' })
      }
    },
  })
  const { clock, certificates, record } = scene
  await certificates.run()
  t.equal((await record())?.nextTryAt, clock.now() + MINUTE, 'the next one may be asked soon')
  await clock.advance(MINUTE)
  await certificates.run()
  t.match(await record(), { problem: null, failures: 0 })
  t.ok((await record())?.issued)
  t.equal(asked, 1)
})

t.test('one that does not know what a new one takes the place of gives it', { skip: skipWithoutPebble }, async (t) => {
  let refusal = ''
  const scene = await startScene(t, {
    rule:
      () =>
      async ({ payload }, pass) =>
        payload.includes('"replaces"') ? problemAnswer(refusal, 'not ours') : pass(),
  })
  const { clock, certificates, record, serial } = scene
  await certificates.run()
  // As Let's Encrypt says of one that another authority gave, that another account asked for, and that was replaced.
  for (refusal of ['malformed', 'unauthorized', 'alreadyReplaced']) {
    const before = await serial()
    await certificates.renew(HOST, false)
    for (let tries = 0; tries < 2 && (await serial()) === before; tries += 1) {
      await certificates.run()
      await clock.advance(MINUTE)
    }
    t.match(await record(), { problem: null, failures: 0 }, refusal)
    t.not(await serial(), before, refusal)
  }
})
