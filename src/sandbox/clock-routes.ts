/**
 * `/dev/clock`: application time, which runs faster or jumps ahead on request (sandbox/README.md "Routes under /dev").
 */
import type { Context } from 'koa'
import { DAY, SECOND, toUnixSeconds } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import { readDuration } from '../config/settings/field-types.ts'
import type { AdjustableClock } from './adjustable-clock.ts'
import { readJsonObject, refusal, sendData, type DevRoutes } from './dev-route.ts'

const LONGEST_JUMP = 400 * DAY
const FIELDS = ['speed', 'advance']

/** `onChange` is told after every change. */
export function clockRoutes(clock: AdjustableClock, onChange: () => void): DevRoutes {
  const show = (context: Context): void => sendData(context, clockView(clock))
  return {
    'GET /dev/clock': (context) => show(context),
    'POST /dev/clock': async (context) => {
      const { speed, advance } = readChange(await readJsonObject(context))
      // A speed that is refused leaves everything as it was.
      if (speed !== null) clock.setSpeed(speed)
      if (advance !== null) clock.advance(advance)
      onChange()
      show(context)
    },
  }
}

function clockView(clock: AdjustableClock): Record<string, unknown> {
  const now = clock.now()
  return {
    time: toUnixSeconds(now),
    iso: new Date(now).toISOString(),
    speed: clock.speed(),
    ahead_seconds: Math.floor(clock.ahead() / SECOND),
  }
}

function readChange(given: Record<string, unknown>): { speed: number | null; advance: number | null } {
  const unknown = Object.keys(given).find((name) => !FIELDS.includes(name))
  if (unknown !== undefined) {
    throw refusal(`the body no field ${JSON.stringify(unknown)} here; there are speed and advance`)
  }
  const speed = 'speed' in given ? readSpeed(given['speed']) : null
  const advance = 'advance' in given ? readJump(given['advance']) : null
  if (speed === null && advance === null) throw refusal('the body needs speed or advance')
  return { speed, advance }
}

function readSpeed(value: unknown): number {
  if (typeof value === 'number') return value
  throw refusal('speed: must be a number')
}

function readJump(value: unknown): number {
  // A duration with a minus in front.
  if (typeof value === 'string' && /^-\d/.test(value)) {
    throw new ServiceError('conflict', 'advance: time never goes backwards')
  }
  const reading = readDuration(value, { min: 0, max: LONGEST_JUMP })
  if (reading.ok) return reading.value
  throw refusal(`advance: ${reading.problem}`)
}
