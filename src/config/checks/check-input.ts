/** What the checks that span several files are given. */
import type { PoolSettings } from '../settings/pool-settings.ts'
import type { ProviderSettings } from '../settings/provider-settings.ts'
import type { ServerSettings } from '../settings/server-settings.ts'
import type { WarmupSettings } from '../settings/warmup-settings.ts'

/** What could be judged; undefined where the file has mistakes. */
export interface JudgedSettings {
  server: ServerSettings | undefined
  pools: PoolSettings | undefined
  warmup: WarmupSettings | undefined
  providers: ProviderSettings | undefined
}

export interface CheckConditions {
  isOffline: boolean
  /** Unix milliseconds. */
  now: number
}
