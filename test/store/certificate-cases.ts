/** Certificates by ACME and our accounts at authorities: what was saved is what is read. */
import type { CertificateRecord } from '../../src/store/records/certificate-records.ts'
import type { Cases } from './conformance-case.ts'
import { NOW } from './store-samples.ts'

const DIRECTORY = 'https://authority.test/directory'
const KEY = Uint8Array.of(1, 2, 3)
const FIRST: CertificateRecord = {
  name: 'mail.acme.test',
  names: ['mail.acme.test', 'api.acme.test'],
  issued: null,
  order: {
    directory: DIRECTORY,
    url: `${DIRECTORY}/order/1`,
    sealedKey: KEY,
    proof: { type: 'http-01', name: 'mail.acme.test', token: 'token', authorization: 'token.thumbprint' },
  },
  failures: 2,
  nextTryAt: NOW,
  problem: 'port 80 is closed',
}

export const certificates: Cases = {
  'a certificate is saved whole, in place of the one with its name': async (t, { store }) => {
    t.same(await store.certificates(), [])
    const other = { ...FIRST, name: 'a.acme.test', names: ['a.acme.test'], order: null, problem: null }
    await store.saveCertificate(FIRST)
    await store.saveCertificate(other)
    t.same(await store.certificates(), [other, FIRST], 'by name')
    const issued: CertificateRecord = {
      ...FIRST,
      issued: { chain: '-----BEGIN CERTIFICATE-----', sealedKey: KEY, renewAt: NOW + 1, directory: DIRECTORY },
      order: null,
      failures: 0,
    }
    await store.saveCertificate(issued)
    t.same(await store.certificates(), [other, issued])
    await store.saveCertificate({ ...issued, order: FIRST.order })
    t.match(await store.certificates(), [other, { issued: { directory: null }, order: FIRST.order }])
  },
  'there is one account at each authority': async (t, { store }) => {
    t.equal(await store.acmeAccount(DIRECTORY), null)
    const account = { directory: DIRECTORY, sealedKey: KEY, url: null }
    await store.saveAcmeAccount(account)
    t.same(await store.acmeAccount(DIRECTORY), account)
    await store.saveAcmeAccount({ ...account, url: `${DIRECTORY}/account/7` })
    t.match(await store.acmeAccount(DIRECTORY), { url: `${DIRECTORY}/account/7` })
  },
}
