/**
 * Who logs in: any user name, and an API key with the scope `send` as the password (inbound/README.md "Submission"). A
 * refused login is answered late and counted by client address. Nothing that was sent is logged.
 */
import { SECOND, type Clock } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { clientKey } from '../../base/ip-address.ts'
import type { Logger } from '../../base/logger.ts'
import type { Metrics } from '../../base/metrics.ts'
import { createRateLimit } from '../../base/rate-limit.ts'
import type { Caller } from '../../messages/accept/send-request.ts'
import { hasScope, type ApiKeys } from '../../senders/api-key.ts'
import { smtpRefusal, refusalOf } from '../smtp-refusal.ts'

/** What a connection is once it has logged in. */
export interface Login {
  /** As of the last check. */
  caller: Caller
  /** Takes over what has changed about the key; throws SmtpRefusal when it no longer holds, which ends the connection. */
  recheck(): Promise<void>
}

export interface LogInParts {
  settings: { submission: { auth_failures: { count: number; per_milliseconds: number } } }
  apiKeys: Pick<ApiKeys, 'authenticate'>
  clock: Clock
  logger: Logger
  metrics: Pick<Metrics, 'submissionSessions' | 'messagesRejected'>
}

const REFUSED_AFTER_MILLISECONDS = SECOND

export function createLogIn(parts: LogInParts): (key: string, remoteAddress: string) => Promise<Login> {
  const { apiKeys, clock, logger, metrics } = parts
  const { count, per_milliseconds: perMilliseconds } = parts.settings.submission.auth_failures
  const failures = createRateLimit({ clock, count, perMilliseconds, burst: count })

  async function authenticate(key: string, remoteAddress: string): Promise<Caller> {
    const record = await apiKeys.authenticate(key, remoteAddress)
    if (!hasScope(record, 'send')) {
      throw new ServiceError('unauthorized', `the key ending in ${record.last4} has no scope send`)
    }
    return {
      apiKeyId: record.id,
      mode: record.mode,
      domains: record.domains,
      source: 'smtp',
      facts: { api_key: `${record.name} …${record.last4}`, remote_address: remoteAddress },
    }
  }

  return async (key, remoteAddress) => {
    try {
      const caller = await authenticate(key, remoteAddress)
      metrics.submissionSessions.inc({ result: 'accepted' })
      const login: Login = {
        caller,
        async recheck() {
          login.caller = await authenticate(key, remoteAddress).catch((thrown: unknown) => {
            if (!(thrown instanceof ServiceError)) throw thrown
            // Not 535: for that a server would give the mail back to its sender, while a refused login makes it wait.
            throw thrown.code === 'unauthorized' ? smtpRefusal(421, `4.7.0 ${thrown.details}`) : refusalOf(thrown)
          })
        },
      }
      return login
    } catch (thrown) {
      if (!(thrown instanceof ServiceError)) throw thrown
      // Whether the key is good is not known: that is no failure of the client's.
      if (thrown.code === 'unavailable') throw refusalOf(thrown)
      if (failures.state(clientKey(remoteAddress)).remaining === 0) {
        metrics.submissionSessions.inc({ result: 'limited' })
        throw smtpRefusal(421, '4.7.0 too many failed logins from this address, try again later')
      }
      failures.take(clientKey(remoteAddress))
      metrics.submissionSessions.inc({ result: 'refused' })
      logger.info({ remote_address: remoteAddress, reason: thrown.details }, 'login refused')
      await new Promise<void>((resolve) => clock.after(REFUSED_AFTER_MILLISECONDS, resolve))
      throw refusalOf(thrown)
    }
  }
}
