/** `/dev/hooks/{name}`: the webhook inspector over HTTP (sandbox/README.md "Routes under /dev"). */
import type { Context } from 'koa'
import { toUnixSeconds } from '../base/clock.ts'
import {
  notFound,
  queryLimit,
  queryText,
  queryWait,
  readBody,
  readJsonObject,
  readTimes,
  refusal,
  sendData,
  sendList,
  type DevRoutes,
} from './dev-route.ts'
import { HOOKS_PATH } from './hook-secrets.ts'
import type { HookAnswer, HookDelivery, WebhookInspector } from './webhook-inspector.ts'

const MOST_BODY_BYTES = 1024 * 1024
const OK = 200
/** Statuses that end a request; 1xx do not. */
const LOWEST_STATUS = 200
const HIGHEST_STATUS = 599

export function hookRoutes(inspector: WebhookInspector): DevRoutes {
  const path = `${HOOKS_PATH}:name`
  return {
    [`POST ${path}`]: async (context, parameters) => {
      const body = await readBody(context, MOST_BODY_BYTES)
      const delivery = inspector.receive(nameOf(parameters), context.headers, body)
      await give(context, delivery.answer, inspector)
    },
    [`GET ${path}`]: async (context, parameters) => {
      const [kind, limit, wait] = [queryText(context, 'event'), queryLimit(context), queryWait(context)]
      sendList(context, (await inspector.find(nameOf(parameters), kind, limit, wait)).map(deliveryView))
    },
    [`PUT ${path}`]: async (context, parameters) => {
      const script = readScript(await readJsonObject(context))
      inspector.answerWith(nameOf(parameters), script.answer, script.times)
      sendData(context, script)
    },
  }
}

function nameOf(parameters: Record<string, string>): string {
  const name = parameters['name'] ?? ''
  // Letters, digits, hyphen and underscore, at most 64.
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(name)) throw notFound('a hook name has 1 to 64 letters, digits, "-" and "_"')
  return name
}

async function give(context: Context, answer: HookAnswer, inspector: WebhookInspector): Promise<void> {
  if (answer === 'close') {
    context.respond = false
    context.req.socket.destroy()
    return
  }
  if (answer === 'slow') await inspector.dawdle()
  sendData(context, { received: true })
  context.status = answer === 'slow' ? OK : answer
}

function deliveryView(delivery: HookDelivery): Record<string, unknown> {
  const { receivedAt, attempt, signature, answer, event, headers, body } = delivery
  return { received_at: toUnixSeconds(receivedAt), attempt, signature, answer, event, headers, body }
}

function readScript(given: Record<string, unknown>): { answer: HookAnswer; times: number | null } {
  const { answer, times: wanted = null } = given
  const problems = isAnswer(answer)
    ? []
    : [`answer: must be a status from ${LOWEST_STATUS} to ${HIGHEST_STATUS}, "slow" or "close"`]
  const times = readTimes(wanted, problems)
  if (isAnswer(answer) && problems.length === 0) return { answer, times }
  throw refusal(problems.join('; '))
}

function isAnswer(value: unknown): value is HookAnswer {
  if (value === 'slow' || value === 'close') return true
  return typeof value === 'number' && Number.isInteger(value) && value >= LOWEST_STATUS && value <= HIGHEST_STATUS
}
