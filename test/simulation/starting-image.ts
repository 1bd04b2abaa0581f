/**
 * The database that every simulated world begins with: two verified sending domains and one webhook endpoint.
 */
import Sqlite from 'better-sqlite3'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import { addAddressFunctions } from '../../src/store/sqlite/engine/address-functions.ts'
import { createWriteVerbs } from '../../src/store/verbs/verbs.ts'
import { sealSecret } from '../../src/webhooks/endpoint-secret.ts'
import { verifiedDomain } from '../delivery/start-engine.ts'
import { emptyDatabase } from './store.ts'
import { SENDERS, SMALL_SENDER } from './story.ts'
import { BEGINS_AT } from './virtual-time.ts'

export const MASTER_KEY = Buffer.alloc(32, 7)

export function startingImage(): Buffer {
  const database = new Sqlite(emptyDatabase())
  addAddressFunctions(database, undefined)
  const verbs = createWriteVerbs({ writer: database, giveBackPages: () => 0 })
  for (const name of [...SENDERS, SMALL_SENDER]) verbs.addDomain(verifiedDomain(name, []), null)
  const id = newIdentifier('wh', BEGINS_AT)
  verbs.addWebhookEndpoint({
    id,
    url: 'http://hooks.test/',
    events: ['*'],
    include: [],
    isTest: false,
    domains: [],
    description: null,
    status: 'enabled',
    sealedSecret: sealSecret(createKeyRing(MASTER_KEY), id, 'secret'),
    createdAt: BEGINS_AT,
  })
  const image = database.serialize()
  database.close()
  return image
}
