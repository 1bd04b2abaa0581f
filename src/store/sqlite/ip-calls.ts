/**
 * The verbs of dedicated IPs and outbound TLS as the main thread calls them: those of the store's interface over those
 * of the thread, which take one argument each.
 */
import type { Store } from '../store.ts'
import type { createIpReadVerbs, createIpWriteVerbs } from './ip-verbs.ts'
import type { Call } from './verbs.ts'

type IpVerb = keyof ReturnType<typeof createIpWriteVerbs> | keyof ReturnType<typeof createIpReadVerbs>

export function createIpCalls(call: Call): Pick<Store, IpVerb> {
  return {
    ipRecords: () => call('ipRecords'),
    addIpRecords: (records) => call('addIpRecords', records),
    changeIp: (change) => call('changeIp', change),
    reserveAllowance: (request) => call('reserveAllowance', request),
    peekAllowance: (request) => call('peekAllowance', request),
    warmupDays: (ip, from) => call('warmupDays', { ip, from }),
    warmupAudit: (ip, limit) => call('warmupAudit', { ip, limit }),
    ipHealth: (ip, since) => call('ipHealth', { ip, since }),
    ipDays: (ip, limit) => call('ipDays', { ip, limit }),
    ipStatistics: (ip, from, to) => call('ipStatistics', { ip, from, to }),
    ispMix: (ips, since) => call('ispMix', { ips, since }),
    loadPathStates: () => call('loadPathStates'),
    savePathStates: (states) => call('savePathStates', states),
    forgetIpHistory: (request) => call('forgetIpHistory', request),
    findStsPolicy: (domain) => call('findStsPolicy', domain),
    keepStsPolicy: (policy) => call('keepStsPolicy', policy),
    stsPoliciesFetchedBefore: (before, limit) => call('stsPoliciesFetchedBefore', { before, limit }),
    plainMemories: (now) => call('plainMemories', now),
    keepPlainMemories: (memories) => call('keepPlainMemories', memories),
    forgetPlainMemory: (ip, host) => call('forgetPlainMemory', { ip, host }),
    addTlsResults: (results) => call('addTlsResults', results),
    tlsResults: (day) => call('tlsResults', day),
    noteTlsReport: (day, domain) => call('noteTlsReport', { day, domain }),
    tlsReportsDue: (day) => call('tlsReportsDue', day),
  }
}
