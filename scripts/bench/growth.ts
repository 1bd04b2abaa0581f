/**
 * What grows with the queue, and what must not: cost of the store's verbs, memory, answers while draining, restart, and
 * the choice of an IP.
 */
import { measureChoosing, type ChoosingFigures } from './choosing.ts'
import { createProgress } from './growth-progress.ts'
import { measureFullServer, type FullServerFigures } from './growth-server.ts'
import { measureStoreGrowth, type StoreGrowthRow } from './growth-store.ts'
import type { BenchOptions } from './options.ts'

export interface GrowthFigures {
  store: StoreGrowthRow[]
  serve: FullServerFigures
  choosing: ChoosingFigures
}

export async function measureGrowth({ stored }: BenchOptions): Promise<GrowthFigures> {
  const tell = createProgress('growth')
  return {
    choosing: await measureChoosing(),
    store: await measureStoreGrowth(stored, tell),
    serve: await measureFullServer(stored, tell),
  }
}
