/**
 * What our doors answer while an authority looks for a proof: of the order under way, which may be that of another node.
 */
import type { KeyPair } from '../base/service/server-certificates.ts'
import type { AcmeOrder, AcmeProof } from '../store/records/certificate-records.ts'
import type { AcmeLibrary } from './acme-client.ts'

export function createOpenProofs(library: () => Promise<AcmeLibrary>) {
  /** token -> key authorization. */
  const tokens = new Map<string, string>()
  /** name -> certificate that holds the proof. */
  const handshakes = new Map<string, KeyPair>()
  let shown: string[] = []
  return {
    challenges: { tokens, handshakes },
    /** From now on these, and no others. */
    async show(orders: readonly (AcmeOrder | null)[]): Promise<void> {
      const proofs = orders.flatMap((order) => order?.proof ?? [])
      const wanted = proofs.map((proof) => JSON.stringify(proof))
      if (wanted.join() === shown.join()) return
      const pairs = new Map<string, KeyPair>()
      for (const proof of proofs) {
        if (proof.type === 'tls-alpn-01') pairs.set(proof.name, await certificateWith(proof, await library()))
      }
      shown = wanted
      tokens.clear()
      handshakes.clear()
      for (const { type, token, authorization } of proofs) if (type === 'http-01') tokens.set(token, authorization)
      for (const [name, pair] of pairs) handshakes.set(name, pair)
    },
  }
}

async function certificateWith({ name, authorization }: AcmeProof, { crypto }: AcmeLibrary): Promise<KeyPair> {
  const [key, cert] = await crypto.createAlpnCertificate(
    { identifier: { type: 'dns', value: name } } as never,
    // The library hashes the key authorization as RFC 8737 §3 asks, but for http-01 it hands it out as it is.
    authorization,
    await crypto.createPrivateEcdsaKey('P-256'),
  )
  return { cert, key }
}
