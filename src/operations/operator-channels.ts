/**
 * The ways to the operator (config/README.md "sternpost.yaml": operator): a mail by the default pool, and a post to a
 * URL. The mail takes the usual road: its sender is the name of this server where that is a verified sending domain, or
 * is below one that allows subdomains; else a domain that is verified. Rejects when neither can send now.
 */
import { randomUUID } from 'node:crypto'
import { SECOND } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import { shellWord } from '../base/shell-word.ts'
import {
  alertDocument,
  alertMail,
  alertSubject,
  type OperatorAlert,
  type OperatorChannel,
} from '../health/operator-alert.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import { ADMINISTRATOR, OWN_MAIL, type AcceptSubmission } from '../messages/accept/send-request.ts'
import { createGuardedRequest, type GuardedRequestOptions } from '../network/guarded-request.ts'
import type { Domains } from '../senders/domains.ts'

export interface OperatorChannelParts {
  acceptSubmission: AcceptSubmission
  domains: Pick<Domains, 'list'>
}

export function operatorChannels(server: ServerSettings, parts: OperatorChannelParts): OperatorChannel[] {
  const { hostname, operator, webhooks, tls } = server
  const { allow_private_addresses: allowPrivateAddresses, allow_http: allowHttp } = webhooks
  const rules = { allowPrivateAddresses, allowHttp, caFile: tls.ca_file }
  return [
    ...(operator.email === null ? [] : [operatorMail(operator.email, hostname, parts)]),
    ...(operator.webhook === null ? [] : [operatorWebhook(operator.webhook, rules)]),
  ]
}

const A_FEW = 5
const LOCAL_PART = 'postmaster'
const UNDO = 'sternpost suppression remove'

function operatorMail(to: string, hostname: string, parts: OperatorChannelParts): OperatorChannel {
  const sendFrom = async (domain: string, alert: OperatorAlert): Promise<void> => {
    const from = `${LOCAL_PART}@${domain}`
    const mail = { from, recipients: [to], subject: alertSubject(alert), raw: alertMail(alert, { from, to }) }
    const idempotencyKey = `alert ${randomUUID()}`
    const { suppressed } = await parts.acceptSubmission({ ...mail, ...OWN_MAIL, idempotencyKey }, ADMINISTRATOR)
    if (suppressed.length > 0) throw new Error(`${to} is suppressed: ${UNDO} ${shellWord(to)} --yes`)
  }
  return {
    name: `mail ${to}`,
    async send(alert) {
      // For when the name of this server may not send.
      const others = await parts.domains.list({ status: 'verified', limit: A_FEW, after: null })
      let refusal: unknown
      for (const domain of [hostname, ...others.domains.map((view) => view.domain)]) {
        try {
          return await sendFrom(domain, alert)
        } catch (thrown) {
          // Another sender may be permitted; whatever else is wrong is wrong for all of them.
          if (!(thrown instanceof ServiceError) || thrown.code !== 'domain_not_verified') throw thrown
          refusal ??= thrown
        }
      }
      throw refusal
    },
  }
}

const POST_MILLISECONDS = 10 * SECOND
const OK = { first: 200, last: 299 }

function operatorWebhook(url: string, rules: GuardedRequestOptions): OperatorChannel {
  return {
    // Its path may be a secret, as that of a chat is; the name is logged and kept.
    name: `webhook ${new URL(url).host}`,
    async send(alert) {
      const request = createGuardedRequest(rules)
      try {
        const answer = await request.post({
          url,
          headers: { 'Content-Type': 'application/json' },
          body: JSON.stringify(alertDocument(alert)),
          timeoutMilliseconds: POST_MILLISECONDS,
        })
        if (answer.kind === 'failed') throw new Error(answer.reason)
        if (answer.status < OK.first || answer.status > OK.last) throw new Error(`it answered ${answer.status}`)
      } finally {
        await request.close()
      }
    },
  }
}
