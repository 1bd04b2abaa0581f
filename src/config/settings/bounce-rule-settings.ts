/**
 * `bounces.yaml`: rules from reply texts to bounce categories, in the order in which they are tried (config/README.md).
 * What follows from a category is fixed in `mail/reply/bounce-category.ts`, so that events keep their meaning.
 */
import { z } from 'zod'
import { BOUNCE_CATEGORY_NAMES } from '../../mail/reply/bounce-category.ts'
import { boolean, choice, text } from './field-types.ts'
import { field, section } from './reading.ts'
import { readProviderId } from './pool-settings.ts'
import { ANY_PROVIDER, inOrderOfTrial, readRuleId, REPLY_STAGES } from './provider-settings.ts'

/** `dsn` is a report that came by mail. */
const BOUNCE_STAGES = [...REPLY_STAGES, 'dsn'] as const
/** Whether an answer that means a dead address puts it on the suppression list. */
const SUPPRESS_CHOICES = [
  'always', // at once
  'second', // only the second such answer within 30 days, at least 24 h apart
] as const

export const bouncesSchema = section({
  version: choice([1]),
  rules: z
    .array(
      section({
        id: field(readRuleId),
        provider: field(readProviderId).default(ANY_PROVIDER),
        stage: z.array(choice(BOUNCE_STAGES)).default([]),
        class: choice([4, 5]).nullable().default(null),
        match: text,
        category: choice(BOUNCE_CATEGORY_NAMES),
        in_reports: choice(BOUNCE_CATEGORY_NAMES).nullable().default(null),
        weak: boolean.default(false),
        suppress: choice(SUPPRESS_CHOICES).default('always'),
        example: text,
      }),
    )
    .default([]),
})

export type BounceRuleSettings = z.infer<typeof bouncesSchema>

export function resolveBounceRuleSettings(parsed: BounceRuleSettings): BounceRuleSettings {
  return { ...parsed, rules: inOrderOfTrial(parsed.rules) }
}
