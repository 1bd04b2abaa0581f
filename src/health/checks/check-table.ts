/** The table of all checks (health/README.md "Checks"), in the order in which they are shown. */
import { checkBackup, checkConfig, checkDatabase } from './check-files.ts'
import { checkBlocklists, checkForwardNames, checkPtr, checkOwnNames } from './check-ip-names.ts'
import { checkClock, checkDisk, checkSecrets } from './check-host.ts'
import { checkDomainAge, checkDomains } from './check-domains.ts'
import { checkFeedback, checkOrphans, checkQueue, checkWarmup, checkWebhooks } from './check-mail-flow.ts'
import { checkInbound, checkListeners } from './check-doors.ts'
import { checkIpPresent, checkIpSource, checkPort25 } from './check-ips.ts'
import { checkNodes } from './check-nodes.ts'
import { checkTls } from './check-tls.ts'
import { checkUnits } from './check-units.ts'
import type { HealthCheck } from './check.ts'

export const CHECKS: readonly HealthCheck[] = [
  checkClock,
  checkConfig,
  checkDisk,
  checkDatabase,
  checkSecrets,
  checkListeners,
  checkUnits,
  checkNodes,
  checkIpPresent,
  checkIpSource,
  checkPort25,
  checkPtr,
  checkForwardNames,
  checkOwnNames,
  checkDomains,
  checkInbound,
  checkTls,
  checkBlocklists,
  checkDomainAge,
  checkQueue,
  checkOrphans,
  checkWarmup,
  checkWebhooks,
  checkFeedback,
  checkBackup,
]

export const CHECK_IDS: readonly string[] = CHECKS.map(({ id }) => id)
