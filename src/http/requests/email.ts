/**
 * POST /email/send: JSON -> SendRequest.
 *
 * Only JSON types are judged here. What is wrong about them is handed on with the rest, because the recipient is judged
 * before all other fields and the answer lists everything (contract.md 2.1, steps 9 and 10).
 */
import { z } from 'zod'
import type { GivenAttachment, SendRequest } from '../../messages/send-request.ts'
import { describeProblem, isObject } from '../read-fields.ts'
import type { ReadFields } from '../read-fields.ts'
import { optionalText } from './optional.ts'

/** contract.md 16. */
const MOST_ATTACHMENTS = 20

const attachmentSchema = z.object({
  name: z.string(), content: z.string(), content_type: optionalText(), content_id: optionalText(),
})

export const sendSchema = z.object({
  to: z.string(),
  from: z.string(),
  subject: z.string(),
  html: optionalText(),
  text: optionalText(),
  reply_to: optionalText(),
  attachments: z.array(attachmentSchema).max(MOST_ATTACHMENTS).nullish(),
  // Taken as it is: a copy could lose or misread keys such as __proto__.
  variables: z.custom<Record<string, unknown>>(isObject, 'expected an object').nullish(),
})

export function toSendRequest({ body, problems }: ReadFields<z.infer<typeof sendSchema>>): SendRequest {
  const hasBadRecipient = problems.some(({ path }) => path === 'to')
  return {
    to: hasBadRecipient ? undefined : textOf(body, 'to'),
    from: textOf(body, 'from'),
    subject: textOf(body, 'subject'),
    html: textOf(body, 'html'),
    text: textOf(body, 'text'),
    replyTo: textOf(body, 'reply_to'),
    attachments: toAttachments(own(body, 'attachments')),
    variables: toVariables(own(body, 'variables')),
    wrongTypes: problems.map(describeProblem),
  }
}

function toAttachments(value: unknown): GivenAttachment[] {
  if (!Array.isArray(value)) return []
  return value.slice(0, MOST_ATTACHMENTS).map((entry: unknown) => {
    const body = isObject(entry) ? entry : {}
    return {
      name: textOf(body, 'name'),
      content: textOf(body, 'content'),
      contentType: textOf(body, 'content_type'),
      contentId: textOf(body, 'content_id'),
    }
  })
}

function toVariables(value: unknown): SendRequest['variables'] {
  return isObject(value) ? value : null
}

function textOf(body: Record<string, unknown>, name: string): string | undefined {
  const value = own(body, name)
  return typeof value === 'string' ? value : undefined
}

/** Nothing is inherited: a field that is not in the JSON is not there. */
function own(body: Record<string, unknown>, name: string): unknown {
  return Object.hasOwn(body, name) ? body[name] : undefined
}
