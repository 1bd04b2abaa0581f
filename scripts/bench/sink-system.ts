/**
 * The ceiling of the tools: smtp-source straight to the sink, with nothing between.
 */
import { runSmtpSource } from './smtp-source.ts'
import type { Setting, System } from './system.ts'

const SESSIONS = 20

export async function startSinkAlone({ sinkPort, domain }: Setting): Promise<System> {
  return {
    name: 'sink',
    isSigning: false,
    comesToSpeed: false,
    handOver: (load) =>
      runSmtpSource({
        ...load,
        port: sinkPort,
        sessions: SESSIONS,
        from: `shop@${domain}`,
        recipientDomain: 'dest.test',
      }),
    processes: () => ({}),
    stop: async () => {},
  }
}
