/** What follows in the parts of this node when others change something (nodes/README.md "What others change"). */
import type { Dispatcher } from '../delivery/dispatcher.ts'
import type { StartedCertificates } from './certificates.ts'
import type { EgressParts } from './egress.ts'
import type { Foundation } from './foundation.ts'
import type { Senders } from './mail.ts'
import type { Webhooks } from './webhooks.ts'

interface FollowingParts extends EgressParts, Senders, Webhooks {
  certificates: Pick<StartedCertificates['certificates'], 'follow'>
  dispatcher: Pick<Dispatcher, 'holders' | 'othersWrote' | 'wake' | 'resume'>
}

export function followNodes({ nodes, logger }: Foundation, parts: FollowingParts): void {
  const { egress, shaping, apiKeys, domains, eventStreams, webhookEngine, dispatcher, certificates } = parts
  const reread = (): Promise<void> =>
    egress.reread().catch((thrown: unknown) => logger.warn({ err: thrown }, 'states of IPs could not be read again'))
  const followCertificates = (): Promise<void> =>
    certificates
      .follow()
      .catch((thrown: unknown) => logger.warn({ err: thrown }, 'certificates could not be read again'))
  nodes.onEvent({
    isBusy(ip) {
      const rows = [...dispatcher.holders().values()]
      return ip === undefined ? rows.length > 0 : rows.some((held) => 'row' in held && held.row.ip?.address === ip)
    },
    isGone: (ip) => !egress.isBindable(ip),
    taken: shaping.takeOver,
    leaving: shaping.handOver,
    ipsChanged: reread,
    othersChanged() {
      apiKeys.forgetAll()
      domains.forgetAll()
      void reread()
      void followCertificates()
    },
    othersWrote() {
      eventStreams.wake()
      dispatcher.othersWrote()
    },
    freed() {
      dispatcher.resume()
      dispatcher.wake()
      webhookEngine.wake()
    },
  })
  // What changed since they were read for the doors was told to nobody.
  void followCertificates()
}
