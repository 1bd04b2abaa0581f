/**
 * Sending domains as a delivery thread knows them: who signs their mail, and where their tracked links lead.
 *
 * Read from the store's read-only view, and kept for a second. Rejects when the key of the domain does not open; the
 * platform's key is left out then. content/README.md "Rendering and DKIM".
 */
import { LRUCache } from 'lru-cache'
import { SECOND } from '../../base/clock.ts'
import type { KeyRing } from '../../base/key-ring.ts'
import { createSigner, type Signer } from '../../content/mime/dkim.ts'
import type { ContentReader, SealedSigningKey } from '../../store/content-reader.ts'

export interface SenderSettings {
  /** Scheme and host of all tracked links, without a slash at the end; null: https and a tracking host. */
  trackingUrl: string | null
  /** For domains without one of their own. */
  trackingHost: string
  /** A sending domain of the operator that signs all mail too, for feedback loops; null: none. */
  platformDomain: string | null
}

interface KnownSendersOptions extends SenderSettings {
  reader: Pick<ContentReader, 'signingKeys' | 'platformKey' | 'trackingHost'>
  keyRing: KeyRing
}

/** What is known of a sending domain; without signers its mail never leaves the host. */
interface KnownSender {
  signers: Signer[]
  trackingBaseUrl: string
}

const MOST_SENDERS = 5_000
/**
 * A rotated key signs after this at the latest, and so does that of a domain which was removed and added anew: its
 * owner may take the old record away at once.
 */
const SENDER_LIFETIME = SECOND

export function createKnownSenders(options: KnownSendersOptions): (domain: string) => Promise<KnownSender> {
  const { reader, keyRing, trackingUrl, trackingHost, platformDomain } = options
  const senders = new LRUCache<string, Promise<KnownSender>>({ max: MOST_SENDERS, ttl: SENDER_LIFETIME })
  const opened = new LRUCache<string, { sealed: Uint8Array; signer: Signer }>({ max: 2 * MOST_SENDERS })

  async function read(domain: string): Promise<KnownSender> {
    const [keys, platformKey, ownHost] = await Promise.all([
      reader.signingKeys(domain),
      platformDomain === null ? undefined : reader.platformKey(platformDomain),
      reader.trackingHost(domain),
    ])
    const [own] = keys
    // The platform's signature never stands alone, nor twice: its own mail has it already. It is a single one: beside
    // two of the sending domain OpenDKIM looks at no more.
    const further = own === undefined || own.domain === platformDomain ? [] : openable(platformKey)
    const trackingBaseUrl = trackingUrl ?? `https://${ownHost ?? trackingHost}`
    return { signers: [...keys.map(signerOf), ...further], trackingBaseUrl }
  }

  /** Opening and parsing a key costs more than signing with it: the same one is opened once. */
  function signerOf({ domain, selector, sealedPrivateKey: sealed }: SealedSigningKey): Signer {
    const name = `dkim ${domain} ${selector}`
    const known = opened.get(name)
    if (known !== undefined && Buffer.compare(known.sealed, sealed) === 0) return known.signer
    const signer = createSigner({ domain, selector, privateKeyPem: keyRing.open(sealed, name) })
    opened.set(name, { sealed, signer })
    return signer
  }

  /** Nobody's mail waits for the platform's key: the start of the server tells of one that does not open. */
  function openable(key: SealedSigningKey | undefined): Signer[] {
    try {
      return key === undefined ? [] : [signerOf(key)]
    } catch {
      return []
    }
  }

  /** The promise is kept, so that many rows at once read the domain once; a failure is not kept. */
  return (domain) => {
    const known = senders.get(domain)
    if (known !== undefined) return known
    const reading = read(domain)
    senders.set(domain, reading)
    reading.catch(() => senders.delete(domain))
    return reading
  }
}
