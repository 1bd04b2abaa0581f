/**
 * Entry of a process: the appliance as `serve` runs it, on a clock that a file carries across restarts.
 *
 *   node appliance-on-file-clock.ts <configuration folder> <clock file>
 *
 * Its parent speaks to it over IPC: `key` gives an API key, `look` makes it see that the clock was moved, and is
 * answered when nothing is under way any more, `retain` runs the jobs of retention.
 */
import { appendFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startAppliance } from '../../src/appliance.ts'
import { createLogger } from '../../src/base/logger.ts'
import { loadConfiguration } from '../../src/config/load-configuration.ts'
import { fileClock } from './file-clock.ts'
import { keepUp, untilCalm } from './pass-time.ts'

export type Asked = 'key' | 'look' | 'retain'
export type Told =
  { kind: 'ready' } | { kind: 'key'; key: string } | { kind: 'calm' } | { kind: 'failed'; text: string }

const SHIPPED_FOLDER = fileURLToPath(new URL('../../config', import.meta.url))
const [folder = '', clockFile = ''] = process.argv.slice(2)
const tell = (told: Told): void => void process.send?.(told)

const clock = fileClock(clockFile)
const appliance = await startAppliance({
  configuration: loadConfiguration({ folder, shippedFolder: SHIPPED_FOLDER }),
  logger: createLogger({ level: 'info', write: (line) => appendFileSync(join(folder, 'sternpost.log'), line) }),
  clock,
  onFatal: (reason) => tell({ kind: 'failed', text: String(reason.stack) }),
})

async function answer(asked: Asked): Promise<Told> {
  if (asked === 'key') {
    const { key } = await appliance.apiKeys.create({
      name: 'test',
      mode: 'live',
      scopes: ['admin'],
      domains: [],
      allowedIps: [],
      expiresAt: null,
    })
    return { kind: 'key', key }
  }
  if (asked === 'retain') {
    await appliance.schedule.run('watch-budget')
    await appliance.schedule.run('apply-retention')
    return { kind: 'calm' }
  }
  clock.look()
  await keepUp(appliance)
  await untilCalm(appliance)
  return { kind: 'calm' }
}

process.on('message', (asked: Asked) => {
  answer(asked).then(tell, (thrown: unknown) => tell({ kind: 'failed', text: String(thrown) }))
})
// The parent is gone: nobody would end this one.
process.on('disconnect', () => process.exit())
tell({ kind: 'ready' })
