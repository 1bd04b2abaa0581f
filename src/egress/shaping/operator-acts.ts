/**
 * What operators do to paths: they let nothing leave from an IP to a mailbox provider, and they lift what holds mail
 * back (commands/README.md "The command line"). A suspension by hand stands beside the ladder, which receivers move,
 * and covers paths that are not known yet. Both acts are in force at once and then stored: who was answered is obeyed
 * after a crash as well. They reject when the store does.
 */
import { newBackOff } from './back-off.ts'
import { heldProviders } from './hold-views.ts'
import { lift } from './ladder.ts'
import type { PathRecord, ShapingRecord } from './records.ts'
import type { ShapingParts } from './state-keeper.ts'
import { isMeant, type Shaping } from './shaping.ts'

export function createOperatorActs(parts: ShapingParts): Pick<Shaping, 'suspend' | 'resume'> {
  const { now, logger, records, keeper, onOpen } = parts
  return {
    async suspend({ ip, provider, reason, actor }) {
      const record = records.ipFor(ip)
      record.heldProviders.set(provider, { since: now(), actor, reason })
      keeper.saveSoon(record)
      logger.warn({ ip, provider, actor, reason }, 'paths suspended by hand')
      await keeper.tick()
    },
    async resume(filter) {
      const { ip, route, provider } = filter
      const meant = <Found extends ShapingRecord>(all: Map<string, Found>): Found[] =>
        [...all.values()].filter((record) => isMeant(filter, record))
      const lifted: ShapingRecord[] = meant(records.paths).filter(liftPath)
      // A lane has all IPs of a pool: one IP alone does not name it.
      if (ip === undefined) lifted.push(...meant(records.lanes).filter(liftLadder))
      const isWholeIp = route === undefined && provider === undefined
      if (isWholeIp) for (const record of meant(records.ips).filter(liftLadder)) keeper.saveSoon(record)
      for (const held of heldProviders(records)) {
        if (!isMeant(filter, { ...held, route: held.provider })) continue
        const record = records.ipFor(held.ip)
        record.heldProviders.delete(held.provider)
        lifted.push(record)
      }
      for (const record of lifted) keeper.saveSoon(record)
      if (lifted.length > 0) logger.info({ ...filter, paths: lifted.length }, 'paths resumed')
      onOpen()
      // Also when nothing was lifted now: an earlier call may have been in force, and refused by the store.
      await keeper.tick()
      return lifted.length
    },
  }
}

function liftPath(record: PathRecord): boolean {
  const { ladder, backOff, replyLimits, carefulHosts } = record
  const isSlower = replyLimits.size > 0 || carefulHosts.length > 0
  const isHeld = ladder.suspension !== null || backOff.step > 0 || isSlower
  lift(ladder)
  record.backOff = { ...newBackOff(), hasWorked: backOff.hasWorked }
  replyLimits.clear()
  record.carefulHosts = []
  record.pace.arrivalAt = 0
  return isHeld
}

function liftLadder({ ladder }: ShapingRecord): boolean {
  if (ladder.suspension === null) return false
  lift(ladder)
  return true
}
