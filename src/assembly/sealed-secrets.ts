/**
 * Whether what is sealed in the database opens with the master key of this server: after a restore without the key it
 * does not. Each domain that can not sign, and each webhook endpoint, is told with what to do about it; the server
 * runs.
 */
import { errorText } from '../base/errors.ts'
import { dkimSealContext } from '../senders/records/dkim-keys.ts'
import type { DomainPage } from '../store/records/records.ts'
import type { WebhookEndpointPage } from '../store/records/webhook-records.ts'
import { openSecret } from '../webhooks/endpoint-secret.ts'
import type { Foundation } from './foundation.ts'

const PAGE = 100

type Sealing = Pick<Foundation, 'store' | 'keyRing' | 'logger'>

export async function tellForeignSecrets({ store, keyRing, logger }: Sealing): Promise<void> {
  try {
    for await (const { name, keys } of allDomains(store)) {
      const isForeign = keys.some(
        ({ role, selector, sealedPrivateKey }) =>
          role === 'active' && !opens(() => keyRing.open(sealedPrivateKey, dkimSealContext(name, selector))),
      )
      if (!isForeign) continue
      const fix = `sternpost domain dkim rotate ${name}; or start with the master key of the backup`
      logger.error({ domain: name, fix }, 'the DKIM key of a domain does not open: its mail waits')
    }
    for await (const id of allEndpoints(store)) {
      const target = await store.findWebhookTarget(id)
      if (target === null || opens(() => openSecret(keyRing, id, target.sealedSecret))) continue
      const fix = `sternpost webhook rotate-secret ${id}; or start with the master key of the backup`
      logger.error({ endpoint_id: id, fix }, 'the secret of a webhook does not open: its events wait')
    }
  } catch (thrown) {
    logger.error({ error: errorText(thrown) }, 'the sealed secrets could not be looked at')
  }
}

function opens(open: () => unknown): boolean {
  try {
    open()
    return true
  } catch {
    // Sealed with another key.
    return false
  }
}

async function* allDomains(store: Sealing['store']): AsyncGenerator<DomainPage['domains'][number]> {
  let after: string | null = null
  do {
    const page: DomainPage = await store.listDomains({ states: null, limit: PAGE, after })
    yield* page.domains
    after = page.next
  } while (after !== null)
}

async function* allEndpoints(store: Sealing['store']): AsyncGenerator<string> {
  let after: string | null = null
  do {
    const page: WebhookEndpointPage = await store.listWebhookEndpoints(PAGE, after)
    for (const { id } of page.endpoints) yield id
    after = page.next
  } while (after !== null)
}
