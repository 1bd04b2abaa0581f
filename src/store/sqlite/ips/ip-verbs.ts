/** The verbs of dedicated IPs and outbound TLS: the part of the table in `verbs.ts` that is about them. */
import type { Database } from 'better-sqlite3'
import { createPeekAllowance, createReserveAllowance } from './allowance.ts'
import { createForgetIpHistory } from './forget-ip-history.ts'
import { createIpDays, createIpHealth, createIpStatistics, createIspMix, createWarmupDays } from './ip-lookups.ts'
import { createAddIpRecords, createChangeIp, createIpRecords, createWarmupAudit } from './ip-records.ts'
import { createLoadPathStates, createSavePathStates } from './path-states.ts'
import {
  createFindStsPolicy,
  createForgetPlainMemory,
  createKeepPlainMemories,
  createKeepStsPolicy,
  createPlainMemories,
  createStsPoliciesFetchedBefore,
} from './sts-policies.ts'
import { createAddTlsResults, createNoteTlsReport, createTlsReportsDue, createTlsResults } from './tls-results.ts'
import { createAddWaitingCounts } from './waiting-counts.ts'

export function createIpWriteVerbs(writer: Database) {
  return {
    addWaitingCounts: createAddWaitingCounts(writer),
    addIpRecords: createAddIpRecords(writer),
    changeIp: createChangeIp(writer),
    reserveAllowance: createReserveAllowance(writer),
    savePathStates: createSavePathStates(writer),
    forgetIpHistory: createForgetIpHistory(writer),
    keepStsPolicy: createKeepStsPolicy(writer),
    plainMemories: createPlainMemories(writer),
    keepPlainMemories: createKeepPlainMemories(writer),
    forgetPlainMemory: createForgetPlainMemory(writer),
    addTlsResults: createAddTlsResults(writer),
    noteTlsReport: createNoteTlsReport(writer),
  }
}

export function createIpReadVerbs(reader: Database) {
  return {
    ipRecords: createIpRecords(reader),
    peekAllowance: createPeekAllowance(reader),
    warmupDays: createWarmupDays(reader),
    warmupAudit: createWarmupAudit(reader),
    ipHealth: createIpHealth(reader),
    ipDays: createIpDays(reader),
    ipStatistics: createIpStatistics(reader),
    ispMix: createIspMix(reader),
    loadPathStates: createLoadPathStates(reader),
    findStsPolicy: createFindStsPolicy(reader),
    stsPoliciesFetchedBefore: createStsPoliciesFetchedBefore(reader),
    tlsResults: createTlsResults(reader),
    tlsReportsDue: createTlsReportsDue(reader),
  }
}
