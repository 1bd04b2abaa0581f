/** People, sessions and the audit of the console on the wire. For administrators: no part of the contract. */
import { z } from 'zod'
import { identifier, optionalText, paging, textOrNull, time, timeOrNull } from './fields.ts'

const role = () => z.enum(['owner', 'operator', 'reader'])

export const makeLoginLinkSchema = z.object({ name: z.string(), role: role().nullish() })

export const changeRoleSchema = z.object({ role: role() })

export const personSchema = z.object({ id: identifier('per'), name: z.string(), role: role(), created_at: time() })

/** `site`: host name it belongs to; `label`: the browser it was made in. */
export const passkeySchema = z.object({
  id: z.string(),
  site: z.string(),
  label: z.string(),
  created_at: time(),
  used_at: timeOrNull(),
})

export const removedPasskeysSchema = z.object({ person: personSchema, removed: z.number() })

/** `url`: logs in once. */
export const loginLinkSchema = z.object({ url: z.string(), expires_at: time(), person: personSchema })

/** Of the person, or of the API key that it was opened with. */
export const sessionSchema = z.object({
  id: identifier('ses'),
  person: personSchema.nullable(),
  key_id: textOrNull(),
  address: z.string(),
  user_agent: z.string(),
  created_at: time(),
  used_at: time(),
  expires_at: time(),
})

export const endedSessionSchema = z.object({ ended: z.literal(true) })

export const listAuditSchema = z.object({ ...paging(), q: optionalText() })

export const auditEntrySchema = z.object({
  at: time(),
  actor: z.string(),
  act: z.string(),
  facts: z.looseObject({}),
  request_id: z.string(),
})

export type PasskeyJson = z.infer<typeof passkeySchema>
export type PersonJson = z.infer<typeof personSchema>
export type LoginLinkJson = z.infer<typeof loginLinkSchema>
export type SessionJson = z.infer<typeof sessionSchema>
export type AuditEntryJson = z.infer<typeof auditEntrySchema>
