/**
 * A process for the durability tests: claims a few rows, then accepts messages from many callers and prints the
 * identifier of each one that was answered, until it is killed.
 *
 * Usage: accept-forever.ts <StoreLocation as JSON>
 */
import type { StoreLocation } from '../../src/store/store-location.ts'
import { openTestStore } from './sqlite-support.ts'
import { acceptOne, claim } from './store-samples.ts'

const CALLERS = 20

const location = JSON.parse(process.argv[2] ?? '') as StoreLocation
const { store } = await openTestStore(location)
const { epoch } = await store.beginEpoch(
  Date.now(),
  Date.now(),
  location.engine === 'postgres' ? location.nodeId : undefined,
)
const accept = async (): Promise<void> => {
  const id = await acceptOne(store)
  process.stdout.write(`${id}\n`)
}
await Promise.all(Array.from({ length: CALLERS }, accept))
await claim(store, epoch)
await Promise.all(
  Array.from({ length: CALLERS }, async () => {
    for (;;) await accept()
  }),
)
