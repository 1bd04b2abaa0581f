/**
 * The ways to the operator (config/README.md "sternpost.yaml": operator): a mail by the default pool, and a post to a
 * URL.
 *
 * The mail takes the usual road: its sender is the name of this server where that is a verified sending domain, or is
 * below one that allows subdomains; else a domain that is verified. Rejects when neither can send now.
 */
import { randomUUID } from 'node:crypto'
import { SECOND } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import {
  alertDocument,
  alertMail,
  alertSubject,
  type OperatorAlert,
  type OperatorChannel,
} from '../health/operator-alert.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import type { AcceptSubmission, Caller } from '../messages/accept/send-request.ts'
import { createGuardedRequest, type GuardedRequestOptions } from '../network/guarded-request.ts'
import type { Domains } from '../senders/domains.ts'

export interface OperatorChannelParts {
  acceptSubmission: AcceptSubmission
  domains: Pick<Domains, 'list'>
}

interface OperatorMailOptions {
  to: string
  hostname: string
  acceptSubmission: AcceptSubmission
  /** Domains that may send, for when the name of this server may not. */
  otherSenders(): Promise<string[]>
}

/** Those of the settings in force. */
export function operatorChannels(server: ServerSettings, parts: OperatorChannelParts): OperatorChannel[] {
  const { hostname, operator, webhooks, tls } = server
  const { acceptSubmission, domains } = parts
  const found: OperatorChannel[] = []
  if (operator.email !== null) {
    const otherSenders = (): Promise<string[]> => sendingNames(domains)
    found.push(operatorMail({ to: operator.email, hostname, acceptSubmission, otherSenders }))
  }
  if (operator.webhook !== null) {
    found.push(
      operatorWebhook(operator.webhook, {
        allowPrivateAddresses: webhooks.allow_private_addresses,
        allowHttp: webhooks.allow_http,
        caFile: tls.ca_file,
      }),
    )
  }
  return found
}

const A_FEW = 5

/** Domains that can send when the name of this server cannot. */
async function sendingNames(domains: OperatorChannelParts['domains']): Promise<string[]> {
  const page = await domains.list({ status: 'verified', limit: A_FEW, after: null })
  return page.domains.map(({ domain }) => domain)
}

const ADMINISTRATOR: Caller = { apiKeyId: null, mode: 'live', domains: [], source: 'smtp' }
const LOCAL_PART = 'postmaster'

function operatorMail({ to, hostname, acceptSubmission, otherSenders }: OperatorMailOptions): OperatorChannel {
  const sendFrom = async (domain: string, alert: OperatorAlert): Promise<void> => {
    const from = `${LOCAL_PART}@${domain}`
    await acceptSubmission(
      {
        from,
        recipients: [to],
        subject: alertSubject(alert),
        raw: alertMail(alert, { from, to }),
        tags: undefined,
        ipPool: undefined,
        track: { opens: false, clicks: false },
        idempotencyKey: `alert ${randomUUID()}`,
      },
      ADMINISTRATOR,
    )
  }
  return {
    name: `mail ${to}`,
    async send(alert) {
      let refusal: unknown
      for (const domain of [hostname, ...(await otherSenders())]) {
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
