/**
 * What the administration routes answer. Times are Unix seconds, rates and durations as the files write them.
 */
import { z } from 'zod'
import { toUnixSeconds } from '../../base/clock.ts'
import type { Mistake } from '../../base/errors.ts'
import { durationText, rateText } from '../../config/settings/field-types.ts'
import type { ProviderLimits } from '../../config/settings/provider-settings.ts'
import type { PathHold, PathView } from '../../egress/shaping/shaping.ts'
import type { QueueGroup } from '../../mail/waiting-mail.ts'
import type { Administration, DomainRoute, PoolState, ReloadResult } from '../exchange/administration.ts'
import { count, textOrNull, time, timeOrNull } from './fields.ts'

const numberOrNull = () => z.int().nullable()

export const reloadResultSchema = z.object({
  applied: z.boolean(),
  revision: z.int().min(1),
  duration_ms: count(),
  changes: z.array(
    z.object({
      kind: z.enum(['added', 'removed', 'changed', 'restart']),
      what: z.string(),
      from: textOrNull(),
      to: textOrNull(),
      pool: textOrNull(),
    }),
  ),
  lines: z.array(z.string()),
  moved: z.array(z.object({ pool: z.string(), messages: count() })),
  mistakes: z.array(
    z.object({
      file: z.string(),
      line: count(),
      column: count(),
      path: z.string(),
      severity: z.enum(['error', 'warning']),
      message: z.string(),
      suggestion: textOrNull(),
    }),
  ),
})

export const queueGroupSchema = z.object({
  name: textOrNull(),
  waiting: count(),
  due: count(),
  held: count(),
  oldest_accepted_at: time(),
})

export const queueActionResultSchema = z.object({
  action: z.enum(['retry', 'hold', 'release', 'drop', 'move']),
  messages: count(),
  dry_run: z.boolean(),
})

const hold = z.object({
  kind: z.enum(['suspension', 'wait', 'limit']),
  scope: z.enum(['path', 'lane', 'provider']),
  rule: textOrNull(),
  cause: z.string(),
  since: time(),
  until: timeOrNull(),
  rate: textOrNull(),
  connections: numberOrNull(),
  messages_per_connection: numberOrNull(),
})

export const pathSchema = z.object({
  ip: textOrNull(),
  pool: textOrNull(),
  route: z.string(),
  provider: textOrNull(),
  isp: z.string(),
  domain: textOrNull(),
  status: z.enum(['suspended', 'waiting', 'probing', 'limited', 'open']),
  concurrency: numberOrNull(),
  step: count(),
  holds: z.array(hold),
})

export const resumedPathsSchema = z.object({ paths: count(), dry_run: z.boolean() })

const limits = z.object({
  connections: z.int().min(1),
  messages_per_connection: z.int().min(1),
  rate: z.string(),
  connection_rate: z.string(),
  tls: z.string(),
  idle: z.string(),
  failures: z.int().min(1),
  scope: z.enum(['host_set', 'provider']),
})

export const poolSchema = z.object({
  name: z.string(),
  default: z.boolean(),
  description: z.string(),
  overflow: z.enum(['spill', 'defer', 'reject']),
  overflow_pool: textOrNull(),
  max_defer: z.string(),
  require_warmup: z.boolean(),
  connections_max: numberOrNull(),
  rate: textOrNull(),
  waiting: count(),
  ips: z.array(
    z.object({
      ip: z.string(),
      source: z.string(),
      hostname: z.string(),
      weight: count(),
      status: z.enum(['cold', 'warming', 'paused', 'warmed', 'suspended', 'disabled']),
      sends: z.enum(['all', 'allowance', 'retries', 'nothing']),
      reason: textOrNull(),
      until: timeOrNull(),
    }),
  ),
})

export const ipNoteSchema = z.object({
  at: time(),
  actor: z.string(),
  action: z.string(),
  from_state: z.string(),
  to_state: z.string(),
  from_stage: numberOrNull(),
  to_stage: numberOrNull(),
  day: textOrNull(),
  figures: z.record(z.string(), z.union([z.number(), z.string(), z.null()])),
  reason: textOrNull(),
})

export const sendDaySchema = z.object({ date: z.string(), planned: count().nullable(), sent: count().nullable() })

export const domainRouteSchema = z.object({
  domain: z.string(),
  problem: textOrNull(),
  provider: textOrNull(),
  isp: textOrNull(),
  route: textOrNull(),
  limits: limits.nullable(),
  hosts: z.array(
    z.object({
      name: z.string(),
      addresses: z.array(z.string()),
      tls: z.object({
        policy: z.enum(['dane', 'sts', 'required', 'none']),
        demand: z.enum(['plain', 'opportunistic', 'required', 'verified', 'dane', 'skip']),
        text: z.string(),
      }),
    }),
  ),
})

export function reloadAnswer(result: ReloadResult): z.infer<typeof reloadResultSchema> {
  const { isApplied, revision, milliseconds, changes, lines, moved, mistakes } = result
  return {
    applied: isApplied,
    revision,
    duration_ms: Math.round(milliseconds),
    changes,
    lines,
    moved,
    mistakes: mistakes.map(mistakeAnswer),
  }
}

function mistakeAnswer({ file, line, column, path, severity, message, suggestion }: Mistake): Mistake {
  return { file, line, column, path, severity, message, suggestion }
}

export function queueGroupAnswer({ oldestAcceptedAt, ...group }: QueueGroup): z.infer<typeof queueGroupSchema> {
  return { ...group, oldest_accepted_at: toUnixSeconds(oldestAcceptedAt) }
}

export function pathAnswer(view: PathView): z.infer<typeof pathSchema> {
  return { ...view, holds: view.holds.map(holdAnswer) }
}

function holdAnswer(held: PathHold): z.infer<typeof hold> {
  const { since, until, rate, messagesPerConnection, ...rest } = held
  return {
    ...rest,
    since: toUnixSeconds(since),
    until: until === null ? null : toUnixSeconds(until),
    rate: rate === null ? null : rateText(rate),
    messages_per_connection: messagesPerConnection,
  }
}

export function poolAnswer({ name, isDefault, settings, ips, waiting }: PoolState): z.infer<typeof poolSchema> {
  const { description, overflow, overflow_pool, max_defer, require_warmup, connections_max, rate } = settings
  return {
    name,
    default: isDefault,
    description,
    overflow,
    overflow_pool,
    max_defer: durationText(max_defer),
    require_warmup,
    connections_max,
    rate: rate === null ? null : rateText(rate),
    waiting,
    ips: ips.map(({ address, source, hostname, weight, state, sends, reason, until }) => ({
      ip: address,
      source,
      hostname,
      weight,
      status: state,
      sends,
      reason,
      until: until === null ? null : toUnixSeconds(until),
    })),
  }
}

type IpNote = Awaited<ReturnType<Administration['audit']>>[number]

export function ipNoteAnswer(note: IpNote): z.infer<typeof ipNoteSchema> {
  const { at, actor, action, fromState, toState, fromStage, toStage, day, figures, reason } = note
  return {
    at: toUnixSeconds(at),
    actor,
    action,
    from_state: fromState,
    to_state: toState,
    from_stage: fromStage,
    to_stage: toStage,
    day,
    figures,
    reason,
  }
}

export function domainRouteAnswer(route: DomainRoute): z.infer<typeof domainRouteSchema> {
  const { domain, problem, provider, hosts } = route
  return {
    domain,
    problem,
    hosts,
    provider: provider?.provider ?? null,
    isp: provider?.isp ?? null,
    route: provider?.route ?? null,
    limits: provider === null ? null : limitsAnswer(provider.limits),
  }
}

function limitsAnswer(given: ProviderLimits): z.infer<typeof limits> {
  const { connections, messages_per_connection, rate, connection_rate, tls, idle, failures, scope } = given
  return {
    connections,
    messages_per_connection,
    rate: rateText(rate),
    connection_rate: rateText(connection_rate),
    tls,
    idle: durationText(idle),
    failures,
    scope,
  }
}
