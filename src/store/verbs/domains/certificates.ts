/** Certificates by ACME and our accounts at authorities: read whole, saved whole. There are few. */
import type { Database } from '../../engine/database.ts'
import type { AcmeAccountRecord, AcmeProof, CertificateRecord } from '../../records/certificate-records.ts'
import type { SomeVerbs } from '../tools/verb-types.ts'

interface CertificateRow {
  name: string
  names: string
  chain: string | null
  sealedKey: Buffer | null
  renewAt: number | null
  /** Of the order under way; else of the authority that issued the chain. */
  directory: string | null
  orderUrl: string | null
  orderSealedKey: Buffer | null
  orderProof: string | null
  failures: number
  nextTryAt: number
  problem: string | null
}

export function createCertificateReads(database: Database) {
  const account = database.prepare<[string], AcmeAccountRecord>(`
    select directory, sealed_key as sealedKey, url from acme_accounts where directory = ?`)
  const all = database.prepare<[], CertificateRow>(`
    select name, names, chain, sealed_key as sealedKey, renew_at as renewAt, directory, order_url as orderUrl,
      order_sealed_key as orderSealedKey, order_proof as orderProof, failures, next_try_at as nextTryAt, problem
    from certificates order by name`)
  return {
    acmeAccount: (directory) => account.get(directory) ?? null,
    certificates: () => all.all().map(toCertificate),
  } satisfies SomeVerbs
}

export function createCertificateWrites(database: Database) {
  const saveAccount = database.prepare<[object]>(`
    insert into acme_accounts (directory, sealed_key, url) values (@directory, @sealedKey, @url)
    on conflict (directory) do update set sealed_key = excluded.sealed_key, url = excluded.url`)
  const save = database.prepare<[object]>(`
    insert into certificates (name, names, chain, sealed_key, renew_at, directory, order_url,
      order_sealed_key, order_proof, failures, next_try_at, problem)
    values (@name, @names, @chain, @sealedKey, @renewAt, @directory, @orderUrl, @orderSealedKey, @orderProof, @failures,
      @nextTryAt, @problem)
    on conflict (name) do update
    set names = @names, chain = @chain, sealed_key = @sealedKey, renew_at = @renewAt, directory = @directory,
      order_url = @orderUrl, order_sealed_key = @orderSealedKey, order_proof = @orderProof, failures = @failures, next_try_at = @nextTryAt,
      problem = @problem`)
  const remove = database.prepare<[string]>('delete from certificates where name = ?')
  return {
    removeCertificate: (name) => void remove.run(name),
    saveAcmeAccount: (record) => void saveAccount.run(record),
    saveCertificate: ({ issued, order, names, ...record }) =>
      void save.run({
        ...record,
        names: JSON.stringify(names),
        chain: issued?.chain ?? null,
        sealedKey: issued?.sealedKey ?? null,
        renewAt: issued?.renewAt ?? null,
        directory: order?.directory ?? issued?.directory ?? null,
        orderUrl: order?.url ?? null,
        orderSealedKey: order?.sealedKey ?? null,
        orderProof: order === null || order.proof === null ? null : JSON.stringify(order.proof),
      }),
  } satisfies SomeVerbs
}

function toCertificate(row: CertificateRow): CertificateRecord {
  const { chain, sealedKey, renewAt, directory, orderUrl, orderSealedKey, orderProof, names, ...record } = row
  const isIssued = chain !== null && sealedKey !== null && renewAt !== null
  const isOrdered = directory !== null && orderSealedKey !== null
  const proof = orderProof === null ? null : (JSON.parse(orderProof) as AcmeProof)
  return {
    ...record,
    names: JSON.parse(names) as string[],
    issued: isIssued ? { chain, sealedKey, renewAt, directory: isOrdered ? null : directory } : null,
    order: isOrdered ? { directory, url: orderUrl, sealedKey: orderSealedKey, proof } : null,
  }
}
