/**
 * Whether what is sealed in the database opens with the master key of this server: after a restore without the key it
 * does not. Each domain that cannot sign, and each webhook endpoint that cannot, has a line in the log that says what
 * to do; the server runs. Never rejects.
 */
import { errorText } from '../base/errors.ts'
import type { KeyRing } from '../base/key-ring.ts'
import type { Logger } from '../base/logger.ts'
import { pagesOf } from '../base/pages.ts'
import { EVERYTHING } from '../mail/reach.ts'
import { dkimKeyOpens } from '../senders/records/dkim-keys.ts'
import type { Store } from '../store/store.ts'
import { openSecret } from '../webhooks/endpoint-secret.ts'

const PAGE = 100

const OTHER_KEY =
  'this database was used with another master key: bounces, complaints, links and opt-outs of mail sent with that one ' +
  'count no more, and suppressed addresses that were erased are written to again'

interface Sealing {
  store: Pick<Store, 'listDomains' | 'listWebhookEndpoints' | 'findWebhookTarget'>
  keyRing: KeyRing
  logger: Logger
}

export async function tellForeignSecrets({ store, keyRing, logger }: Sealing): Promise<void> {
  let foreign = 0
  try {
    for await (const { domains } of pagesOf((after) => store.listDomains({ states: null, limit: PAGE, after }))) {
      for (const { name, keys } of domains) {
        const opensKey = dkimKeyOpens(keyRing, name)
        if (keys.every((key) => key.role !== 'active' || opensKey(key))) continue
        foreign++
        const fix = `sternpost domain dkim rotate ${name}; or start with the master key of the backup`
        logger.error({ domain: name, fix }, 'the DKIM key of a domain does not open: its mail waits')
      }
    }
    for await (const { endpoints } of pagesOf((after) => store.listWebhookEndpoints(EVERYTHING, PAGE, after))) {
      for (const { id } of endpoints) {
        const target = await store.findWebhookTarget(id)
        if (target === null || opens(() => openSecret(keyRing, id, target.sealedSecret))) continue
        foreign++
        const fix = `sternpost webhook rotate-secret ${id}; or start with the master key of the backup`
        logger.error(
          { endpoint_id: id, fix },
          'the secret of a webhook does not open: its events wait, and are given up after a day',
        )
      }
    }
    if (foreign > 0) logger.error({ foreign }, OTHER_KEY)
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
