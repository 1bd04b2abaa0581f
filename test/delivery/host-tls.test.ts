/**
 * Whether a peer's certificate is what was asked for: real handshakes with certificates of a test authority.
 */
import { createHash, generateKeyPairSync, X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { connect, createServer, getCACertificates } from 'node:tls'
import t, { type Test } from 'tap'
import {
  judgePeer,
  readPeer,
  type HostTls,
  type PeerVerdict,
  type TlsaRecord,
} from '../../src/delivery/protocol/host-tls.ts'
import { isUsable } from '../../src/network/tlsa.ts'
import { missingPrograms } from '../support/programs.ts'
import { createTestAuthority, type IssuedCertificate, type TestAuthority } from '../support/test-authority.ts'

const WITH_OPENSSL = { skip: missingPrograms({ openssl: ['openssl'] }) }
const HOST = 'mx.dest.test'

function authorityFor(t: Test): TestAuthority {
  const authority = createTestAuthority()
  t.teardown(() => authority.close())
  return authority
}

/** One handshake as the delivery thread makes it, judged by each policy. */
async function judge(shown: IssuedCertificate, policies: readonly HostTls[], root?: string): Promise<PeerVerdict[]> {
  const { key, chain: cert } = shown
  const server = createServer({ key, cert }, (socket) => socket.on('error', () => socket.destroy()))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const bound = server.address()
  const port = typeof bound === 'object' && bound !== null ? bound.port : 0
  const ca = root === undefined ? [] : [...getCACertificates('default'), root]
  const socket = connect({
    host: '127.0.0.1',
    port,
    servername: HOST,
    rejectUnauthorized: false,
    checkServerIdentity: () => undefined,
    ca,
  })
  await once(socket, 'secureConnect')
  const peer = readPeer(socket)
  const verdicts = policies.map((policy) => judgePeer(peer, HOST, policy, Date.now()))
  socket.destroy()
  server.close()
  return verdicts
}

const dane = (records: TlsaRecord[], names = [HOST, 'dest.test']): HostTls => ({
  kind: 'dane',
  records,
  names,
  policy: { type: 'dane', id: 'x' },
})
const verified: HostTls = { kind: 'verified', names: [HOST], by: 'sts', policy: { type: 'sts', id: '1' } }
const opportunistic: HostTls = { kind: 'opportunistic', policy: { type: 'none', id: '' } }
const testing: HostTls = { kind: 'opportunistic', policy: { type: 'sts', id: '1' } }
const unusable: HostTls = { kind: 'required', by: 'DANE', policy: { type: 'dane', id: 'x' } }

function recordFor(pem: string, usage: number, selector: number, matching: number): TlsaRecord {
  const certificate = new X509Certificate(pem)
  const bytes = selector === 0 ? certificate.raw : certificate.publicKey.export({ type: 'spki', format: 'der' })
  const algorithm = matching === 1 ? 'sha256' : 'sha512'
  const data = matching === 0 ? bytes.toString('hex') : createHash(algorithm).update(bytes).digest('hex')
  return { usage, selector, matching, data }
}

const allKinds = (pem: string, usage: number): TlsaRecord[] =>
  [0, 1].flatMap((selector) => [0, 1, 2].map((matching) => recordFor(pem, usage, selector, matching)))

t.test('a chain to a known root, and the name of the host', WITH_OPENSSL, async (t) => {
  const authority = authorityFor(t)
  const good = authority.issue([HOST])
  const asked = [verified, opportunistic, testing, unusable]
  t.match(await judge(good, asked, authority.certificate), [
    { isAcceptable: true, isVerified: true, problem: null, result: 'success' },
    { isAcceptable: true, isVerified: true, result: 'success' },
    { isAcceptable: true, isVerified: true, result: 'success' },
    { isAcceptable: true, isVerified: true, result: 'tlsa-invalid' },
  ])
  const below = authority.intermediate('Below').issue(['*.dest.test'])
  t.match(await judge(below, [verified], authority.certificate), [{ isVerified: true }], 'an intermediate, a wildcard')
  const cases: [string, IssuedCertificate, string | undefined, string][] = [
    ['unknown root', good, undefined, 'certificate-not-trusted'],
    ['other name', authority.issue(['mx.other.test']), authority.certificate, 'certificate-host-mismatch'],
    ['deeper name', authority.issue(['*.test']), authority.certificate, 'certificate-host-mismatch'],
    ['expired', authority.issue([HOST], { isExpired: true }), authority.certificate, 'certificate-expired'],
  ]
  for (const [name, shown, root, result] of cases) {
    const [strict, plain, tested] = await judge(shown, [verified, opportunistic, testing], root)
    t.match(strict, { isAcceptable: false, isVerified: false, problem: String, result }, name)
    const unasked = { isAcceptable: true, isVerified: false, problem: String, result: 'success' }
    t.match(plain, unasked, `${name}, nothing asked`)
    t.match(tested, { isAcceptable: true, isVerified: false, result }, `${name}, testing`)
  }
})

t.test('DANE with usage 3: this certificate, whatever it says', WITH_OPENSSL, async (t) => {
  const authority = authorityFor(t)
  for (const shown of [authority.issue(['elsewhere.test']), authority.issue([HOST], { isExpired: true })]) {
    const verdicts = await judge(
      shown,
      allKinds(shown.certificate, 3).map((record) => dane([record], [])),
    )
    for (const verdict of verdicts) t.match(verdict, { isAcceptable: true, isVerified: true, result: 'success' })
  }
  const other = authority.issue([HOST])
  const shown = authority.issue([HOST])
  const wrong = allKinds(other.certificate, 3)
  t.match(await judge(shown, [dane(wrong)], authority.certificate), [{ isAcceptable: false, result: 'tlsa-invalid' }])
  const rolling = [...wrong, recordFor(shown.certificate, 3, 1, 1)]
  t.match(await judge(shown, [dane(rolling)]), [{ isAcceptable: true }], 'one of several is enough')
})

t.test('DANE with usage 2: an authority above it, the chain, the dates and a name', WITH_OPENSSL, async (t) => {
  const authority = authorityFor(t)
  const below = authority.intermediate('Below')
  const shown = below.issue([HOST], { withRoot: true })
  for (const anchor of [authority.certificate, below.certificate]) {
    const verdicts = await judge(
      shown,
      allKinds(anchor, 2).map((record) => dane([record])),
    )
    for (const verdict of verdicts) t.match(verdict, { isAcceptable: true, isVerified: true, result: 'success' })
  }
  const ofRoot = allKinds(authority.certificate, 2)
  const bare = below.issue([HOST])
  const [byHash] = await judge(bare, [dane(ofRoot.filter(({ matching }) => matching !== 0))])
  t.match(byHash, { isAcceptable: false, result: 'tlsa-invalid' }, 'a hash of what is not shown proves nothing')
  const [byValue] = await judge(bare, [dane(ofRoot.filter(({ matching }) => matching === 0))])
  t.match(byValue, { isAcceptable: true }, 'the whole authority stands in the record')

  const cases: [string, IssuedCertificate, TlsaRecord[], string][] = [
    ['other name', below.issue(['mx.other.test'], { withRoot: true }), ofRoot, 'certificate-host-mismatch'],
    ['expired', below.issue([HOST], { withRoot: true, isExpired: true }), ofRoot, 'certificate-expired'],
    ['for clients', below.issue([HOST], { withRoot: true, usage: 'clientAuth' }), ofRoot, 'certificate-not-trusted'],
    ['the certificate itself is no authority', shown, allKinds(shown.certificate, 2), 'tlsa-invalid'],
    ['another authority', shown, allKinds(authorityFor(t).certificate, 2), 'tlsa-invalid'],
  ]
  for (const [name, certificate, records, result] of cases) {
    t.match(await judge(certificate, [dane(records)], authority.certificate), [{ isAcceptable: false, result }], name)
  }
  const forServers = below.issue([HOST], { withRoot: true, usage: 'serverAuth' })
  t.match(await judge(forServers, [dane(ofRoot)]), [{ isAcceptable: true }], 'for servers')
  const nextHop = below.issue(['dest.test'], { withRoot: true })
  t.match(await judge(nextHop, [dane(ofRoot)]), [{ isAcceptable: true }], 'the recipient domain is a name of it')

  // A chain that holds the right root, and a certificate that it never signed.
  const stranger = authorityFor(t).issue([HOST])
  const mixed = { ...stranger, chain: `${stranger.certificate}${below.certificate}${authority.certificate}` }
  t.match(await judge(mixed, [dane(ofRoot)]), [{ isAcceptable: false, result: 'tlsa-invalid' }])
})

t.test('of many keys in TLSA records only some are tried', WITH_OPENSSL, async (t) => {
  const authority = authorityFor(t)
  const shown = authority.issue([HOST])
  const keys = Array.from({ length: 100 }, (): TlsaRecord => {
    const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' })
    return {
      usage: 2,
      selector: 1,
      matching: 0,
      data: publicKey.export({ type: 'spki', format: 'der' }).toString('hex'),
    }
  })
  const right = recordFor(authority.certificate, 2, 1, 0)
  const tried = t.capture(X509Certificate.prototype, 'verify', X509Certificate.prototype.verify)
  const [late, early] = await judge(shown, [dane([...keys, right]), dane([right, ...keys])])
  t.match(late, { isAcceptable: false, result: 'tlsa-invalid' }, 'nothing is taken for right that was not looked at')
  t.match(early, { isAcceptable: true })
  t.equal(tried().length, 52, '50, and the right one twice')
})

t.test('which TLSA records can be used', (t) => {
  const full = 'ab'.repeat(32)
  const cases: [usage: number, selector: number, matching: number, data: string, isUsable: boolean][] = [
    [3, 1, 1, full, true],
    [2, 0, 2, full + full, true],
    [3, 0, 0, '30', true],
    [0, 1, 1, full, false],
    [1, 1, 1, full, false],
    [3, 2, 1, full, false],
    [3, 1, 3, full, false],
    [3, 1, 2, full, false],
    [255, 1, 1, full, false],
  ]
  for (const [usage, selector, matching, data, expected] of cases) {
    t.equal(isUsable({ usage, selector, matching, data }), expected, `${usage} ${selector} ${matching}`)
  }
  t.end()
})
