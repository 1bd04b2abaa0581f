/**
 * The verbs of dedicated IPs and outbound TLS as the main thread calls them: those of the store's interface over those
 * of the thread, which take one argument each.
 */
import type { Store } from '../store.ts'
import type { createIpReadVerbs, createIpWriteVerbs } from './ips/ip-verbs.ts'
import type { Call } from './verbs.ts'

type IpVerb = Exclude<
  keyof ReturnType<typeof createIpWriteVerbs> | keyof ReturnType<typeof createIpReadVerbs>,
  'addWaitingCounts'
>

export function createIpCalls(call: Call): Pick<Store, IpVerb> {
  const counted = createCountedCall(call)
  return {
    ipRecords: () => counted('ipRecords'),
    addIpRecords: (records) => call('addIpRecords', records),
    changeIp: (change) => call('changeIp', change),
    reserveAllowance: (request) => call('reserveAllowance', request),
    peekAllowance: (request) => call('peekAllowance', request),
    async warmupDays(ip, from) {
      // The gates judge by all of a day, or not yet.
      await addWaiting(call)
      return call('warmupDays', { ip, from })
    },
    warmupAudit: (ip, limit) => call('warmupAudit', { ip, limit }),
    ipHealth: (ip, since) => counted('ipHealth', { ip, since }),
    ipDays: (ip, limit) => counted('ipDays', { ip, limit }),
    ipStatistics: (ip, from, to) => counted('ipStatistics', { ip, from, to }),
    ispMix: (ips, since) => counted('ispMix', { ips, since }),
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

/** Calls a verb that reads what was counted. When the disk takes no more, what is added up already has to do. */
export function createCountedCall(call: Call): Call {
  return async (verb, ...argument) => {
    await addWaiting(call).catch(() => {})
    return call(verb, ...argument)
  }
}

/** Adds up what waits by now: each call adds some of it. What comes meanwhile is not waited for. */
async function addWaiting(call: Call): Promise<void> {
  let left = await call('addWaitingCounts')
  for (let calls = left; calls > 0 && left > 0; calls -= 1) left = await call('addWaitingCounts')
}
