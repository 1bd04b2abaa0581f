/** The gates within a day: figures of the last hour and blocks pause the warmup of an IP (egress/README.md "Gates"). */
import { DAY, HOUR } from '../../base/clock.ts'
import type { KnownIp } from '../ips/known-ip.ts'
import { judgeHour } from '../warmup/warmup-gates.ts'
import { canMove, moveIp } from '../warmup/warmup-states.ts'
import type { IpParts } from '../ips/ip-parts.ts'

export interface BlockNote {
  ip: string
  isp: string
  reason: string
  /** A fired reply rule with `block: true`, which pauses at once; else one `ip_block` reply. */
  isRule: boolean
}

interface GateWatch {
  /** Judges the last hour of the IP. */
  check(known: KnownIp): Promise<void>
  /** The reason for a pause; undefined: these blocks are not enough. */
  countBlock(block: BlockNote): string | undefined
  pause(ip: string, reason: string): Promise<void>
}

/** Five ip_block replies within an hour pause. */
const BLOCKS_THAT_PAUSE = 5
/** Each further pause within this time doubles. */
const PAUSES_COUNT_FOR = 7 * DAY

export function createGateWatch({ registry, store, clock }: IpParts): GateWatch {
  const blocks = new Map<string, number[]>()

  async function pause(ip: string, reason: string): Promise<void> {
    await registry.change(ip, (record, { ip: { pool }, curve: { curve } }) => {
      if (!canMove(record, 'pause')) return null
      const now = clock.now()
      const earlier = record.pausedAt.filter((at) => at > now - PAUSES_COUNT_FOR)
      const until = now + Math.min(curve.pause.max, curve.pause.for * 2 ** earlier.length)
      const changes = { formerState: record.state, until, pausedAt: [...earlier, now] }
      return moveIp(record, pool, { action: 'pause', now, actor: 'gate', reason, changes })
    })
    blocks.delete(ip)
  }

  return {
    pause,
    async check({ ip: { address }, record, curve: { curve } }) {
      if (record.state !== 'warming') return
      // What led to the last pause does not lead to the next one.
      const since = Math.max(clock.now() - HOUR, record.since)
      const health = await store.ipHealth(address, since)
      const reason = judgeHour(health, curve.pause)
      if (reason !== null) await pause(address, reason)
      else if (curve.pause.on_block && health.blocks >= BLOCKS_THAT_PAUSE) {
        await pause(address, `block: ${health.blocks} replies within an hour refused this IP`)
      }
    },
    countBlock({ ip, isp, reason, isRule }) {
      const known = registry.find(ip)
      if (known?.record.state !== 'warming' || !known.curve.curve.pause.on_block) return undefined
      const now = clock.now()
      const recent = [...(blocks.get(ip) ?? []).filter((at) => at > now - HOUR), now].slice(-BLOCKS_THAT_PAUSE)
      blocks.set(ip, recent)
      return isRule || recent.length >= BLOCKS_THAT_PAUSE ? `block: ${isp}: ${reason}` : undefined
    },
  }
}
