/**
 * What administrators and outages do while mail goes on: the configuration is reloaded, keys and domains come, change
 * and go, the webhook endpoint goes away for a while, and the server is stopped or killed and started again.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { RandomSource } from '../../test/support/random-source.ts'
import { providersAt, RATE_FILE, type SoakScene } from './scene.ts'

export interface Changes {
  /** How often each kind of change was made. */
  readonly made: ReadonlyMap<string, number>
  /** True while the server is stopped or starting. */
  isDown(): boolean
  /** Ends what is under way; the endpoint answers well from then on. */
  stop(): Promise<void>
}

export interface ChangeOptions {
  random: RandomSource
  /** Whether the server may be stopped and killed just now. */
  mayRestart: () => boolean
}

const CHANGE_EVERY = 5_000
const RESTART_EVERY = 30_000
/** The endpoint is away for a part of this: what failed then comes again in a minute, when it is back. */
const ENDPOINT_PERIOD = 150_000
const ENDPOINT_AWAY = 20_000

export function startChanges(scene: SoakScene, { random, mayRestart }: ChangeOptions): Changes {
  const made = new Map<string, number>()
  const stopping = new AbortController()
  const isStopped = (): boolean => stopping.signal.aborted
  let isDown = false
  const count = (name: string): void => void made.set(name, (made.get(name) ?? 0) + 1)
  const pause = (milliseconds: number): Promise<void> =>
    sleep(milliseconds, undefined, { signal: stopping.signal }).catch(() => {})

  const administering = async (): Promise<void> => {
    for (let turn = 0; !isStopped(); turn++) {
      const [name, work] = ADMINISTRATION[turn % ADMINISTRATION.length] ?? []
      // A request that meets a restart fails, and is made again the next time.
      if (!isDown && name !== undefined)
        await work?.(scene, turn, random).then(
          () => count(name),
          () => count('cut off'),
        )
      await pause(CHANGE_EVERY)
    }
  }
  const restarting = async (): Promise<void> => {
    for (let turn = 0; !isStopped(); turn++) {
      await pause(RESTART_EVERY)
      if (isStopped() || !mayRestart()) continue
      isDown = true
      const isKill = turn % 2 === 0
      if (isKill) await scene.server.kill()
      else if ((await scene.server.stop()) !== 0) throw new Error('a clean stop ended with another status than 0')
      await scene.server.start()
      isDown = false
      count(isKill ? 'killed' : 'restarted')
    }
  }
  const turningEndpoint = async (): Promise<void> => {
    for (let turn = 0; !isStopped(); turn++) {
      await pause(ENDPOINT_PERIOD - ENDPOINT_AWAY)
      if (isStopped()) break
      scene.endpoint.turn(turn % 2 === 0 ? 'gone' : 'refusing')
      await pause(ENDPOINT_AWAY)
      scene.endpoint.turn('well')
      count('endpoint away')
    }
    scene.endpoint.turn('well')
  }
  const working = Promise.all([administering(), restarting(), turningEndpoint()])
  working.catch(() => {})
  return {
    made,
    isDown: () => isDown,
    async stop() {
      stopping.abort()
      await working
    },
  }
}

type Administer = (scene: SoakScene, turn: number, random: RandomSource) => Promise<void>

const ADMINISTRATION: [name: string, work: Administer][] = [
  [
    'reload',
    async ({ server }, _turn, random) => {
      writeFileSync(
        join(server.configurationFolder, RATE_FILE),
        JSON.stringify(providersAt(4_000 + random.integer(1_000))),
      )
      process.kill(server.processId, 'SIGHUP')
    },
  ],
  [
    'key',
    async ({ api }, turn) => {
      const { body } = await api.post('/keys', { name: `soak ${turn}`, mode: 'live', scopes: ['send'] })
      const { id } = body['data'] as { id: string }
      await api.patch(`/keys/${id}`, { name: 'another name' })
      await api.delete(`/keys/${id}`)
    },
  ],
  [
    'domain',
    async ({ api }, turn) => {
      await api.post('/domains', { domain: `soak${turn}.test` })
      await api.patch(`/domains/soak${turn}.test`, { tracking: { opens: false } })
      await api.post(`/domains/soak${turn}.test/verify`, {})
      await api.delete(`/domains/soak${turn}.test`)
    },
  ],
  [
    'broken reload',
    async ({ server }) => {
      writeFileSync(join(server.configurationFolder, RATE_FILE), 'default: { rate: nonsense }')
      process.kill(server.processId, 'SIGHUP')
      await sleep(1_000)
      writeFileSync(join(server.configurationFolder, RATE_FILE), JSON.stringify(providersAt(5_000)))
    },
  ],
]
