/**
 * The JSON and the query parameters of the administration routes. `null` means the same as absent.
 */
import { z } from 'zod'
import { SECOND } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import type { QueueAction, QueueFilter } from '../../mail/waiting-mail.ts'
import { DEFAULT_LIMIT, listParameters } from './list.ts'
import { optionalText } from './optional.ts'

export const reloadSchema = z.object({ dry_run: z.boolean().nullish() })

const selection = {
  pool: optionalText(),
  provider: optionalText(),
  route: optionalText(),
  recipient_domain: optionalText(),
  domain: optionalText(),
  ip: optionalText(),
}

export const queueGroupsSchema = z.object({
  by: z.enum(['provider', 'domain', 'ip', 'pool']).nullish(),
  ...selection,
  held: z.enum(['true', 'false']).nullish(),
  accepted_before: z
    .string()
    .regex(/^\d{1,11}$/, 'expected Unix seconds')
    .transform(Number)
    .nullish(),
})

export const queueActionSchema = z.object({
  action: z.enum(['retry', 'hold', 'release', 'drop', 'move']),
  /** Of `move`. */
  to_pool: optionalText(),
  filter: z.object({ ...selection, held: z.boolean().nullish(), accepted_before: z.int().min(0).nullish() }).nullish(),
  dry_run: z.boolean().nullish(),
})

export const pathFilterSchema = z.object({ ip: optionalText(), route: optionalText() })

export const resumePathsSchema = z.object({ ip: optionalText(), route: optionalText(), dry_run: z.boolean().nullish() })

export const suspendIpSchema = z.object({
  reason: z.string().max(200).nullish(),
  /** Id of a block of providers.yaml: mail to it alone. */
  provider: optionalText(),
})

export const resumeIpSchema = z.object({ provider: optionalText() })

export const auditSchema = z.object({ limit: listParameters().limit })

const MOST_DAYS = 90
const DEFAULT_DAYS = { past: 14, ahead: 7 }

/** A whole number from 0 to 99. */
const DAYS = /^\d{1,2}$/

const days = (least: number) =>
  z
    .custom<string>(
      (value) => typeof value === 'string' && DAYS.test(value) && Number(value) >= least && Number(value) <= MOST_DAYS,
      `expected a whole number from ${least} to ${MOST_DAYS}`,
    )
    .meta({ type: 'integer', minimum: least, maximum: MOST_DAYS })
    .transform(Number)
    .nullish()

export const sendDaysSchema = z.object({ past: days(1), ahead: days(0) })

type Given<Value> = Value | null | undefined
type GivenFilter = { [Key in keyof typeof selection]?: Given<string> } & {
  held?: Given<boolean>
  /** Unix seconds. */
  accepted_before?: Given<number>
}

/** What is null or absent does not restrict. */
export function toQueueFilter(given: GivenFilter): QueueFilter {
  const { pool, provider, route, recipient_domain: recipientDomain, domain, ip, held } = given
  return {
    ...(pool == null ? {} : { pool }),
    ...(provider == null ? {} : { isp: provider }),
    ...(route == null ? {} : { route }),
    ...(recipientDomain == null ? {} : { recipientDomain: recipientDomain.toLowerCase() }),
    ...(domain == null ? {} : { domain: domain.toLowerCase() }),
    ...(ip == null ? {} : { ip }),
    ...(held == null ? {} : { isHeld: held }),
    ...(given.accepted_before == null ? {} : { acceptedBefore: given.accepted_before * SECOND }),
  }
}

export function toGroupsFilter({ held, ...given }: z.infer<typeof queueGroupsSchema>): QueueFilter {
  return toQueueFilter({ ...given, held: held == null ? null : held === 'true' })
}

export function toQueueAction({ action, to_pool: pool }: z.infer<typeof queueActionSchema>): QueueAction {
  if (action !== 'move') {
    if (pool != null) throw new ServiceError('invalid_request', 'to_pool: only move takes it')
    return { kind: action }
  }
  if (pool == null) throw new ServiceError('invalid_request', 'to_pool: move needs it')
  return { kind: 'move', pool }
}

export function toPathFilter({ ip, route }: z.infer<typeof pathFilterSchema>): { ip?: string; route?: string } {
  return { ...(ip == null ? {} : { ip }), ...(route == null ? {} : { route }) }
}

export function toDays({ past, ahead }: z.infer<typeof sendDaysSchema>): { past: number; ahead: number } {
  return { past: past ?? DEFAULT_DAYS.past, ahead: ahead ?? DEFAULT_DAYS.ahead }
}

export function toAuditLimit({ limit }: z.infer<typeof auditSchema>): number {
  return limit ?? DEFAULT_LIMIT
}
