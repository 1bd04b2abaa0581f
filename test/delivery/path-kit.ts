/**
 * A path sender of the product over real connections, with rows by number.
 */
import { createSecureContext } from 'node:tls'
import type { Test } from 'tap'
import type { DeliveryTools } from '../../src/delivery/session/row-trials.ts'
import { createHostMemory } from '../../src/delivery/session/open-connection.ts'
import { createPathSender, type PathSender } from '../../src/delivery/session/path-sender.ts'
import { openSession } from '../../src/delivery/session/smtp-session.ts'
import type { TlsTicket } from '../../src/delivery/session/start-tls.ts'
import { createTranscript } from '../../src/delivery/session/transcript.ts'
import type {
  DispatchedRow,
  MailHost,
  PathPlan,
  Site,
  ThreadConnectionNote,
  TryResult,
} from '../../src/delivery/protocol/try-result.ts'
import type { ScriptedMx } from '../support/scripted-mx.ts'
import { until } from '../support/until.ts'
import { BYTES, ENVELOPE, PLAIN, TIMEOUTS } from './session-kit.ts'

export interface Path {
  sender: PathSender
  results: TryResult[]
  notes: ThreadConnectionNote[]
  isIdle(): boolean
  /** Adds rows with these keys. */
  add(keys: number[], change?: { row?: Partial<DispatchedRow>; plan?: Partial<PathPlan>; site?: Partial<Site> }): void
  /** By key, in order. */
  untilDone(count: number): Promise<TryResult[]>
}

export const hostOf = (server: Pick<ScriptedMx, 'address'>, change: Partial<MailHost> = {}): MailHost => ({
  name: 'mx.test',
  addresses: [server.address],
  tls: PLAIN,
  ...change,
})

export function pathTo(
  t: Test,
  server: Pick<ScriptedMx, 'address' | 'port'>,
  tools: Partial<DeliveryTools> = {},
): Path {
  const results: TryResult[] = []
  const notes: ThreadConnectionNote[] = []
  let isIdle = false
  const settings = {
    timeouts: TIMEOUTS,
    secureContext: createSecureContext({ minVersion: 'TLSv1.2' }),
    tickets: new Map<string, TlsTicket>(),
  }
  const firstPlan: PathPlan = {
    key: 'path',
    port: server.port,
    source: '127.0.0.11',
    hostname: 'mail.acme.test',
    connections: 10,
    messagesPerConnection: 100,
    inFlight: 4,
    carefulHosts: [],
    idleMilliseconds: 50,
    connectionRate: null,
  }
  const sender = createPathSender(firstPlan, {
    tools: {
      open: (target, transcript) => openSession(target, settings, transcript),
      transcript: createTranscript,
      note: (note) => void notes.push(note),
      hosts: createHostMemory(),
      render: async ({ key }) => ({ envelope: { ...ENVELOPE, to: `${key}@example.test` }, bytes: BYTES }),
      askMark: (_claim, answer) => answer(true),
      now: Date.now,
      ...tools,
    },
    report: (_row, result) => void results.push(result),
    takeConnection: () => 'example.com',
    releaseConnection: () => {},
    onRest: () => {},
    onIdle: () => void (isIdle = true),
  })
  t.teardown(() => {
    sender.drain()
    sender.abort()
  })
  return {
    sender,
    results,
    notes,
    isIdle: () => isIdle,
    add(keys, { row, plan, site } = {}) {
      isIdle = false
      sender.add({
        path: { ...firstPlan, ...plan },
        site: { key: 'site', hosts: [hostOf(server)], ...site },
        rows: keys.map((key) => ({
          claim: key,
          key,
          messageId: `msg_${key}`,
          contentId: 1,
          domain: 'acme.test',
          returnPath: 'bounces.acme.test',
          recipientDomain: 'example.test',
          expiresAt: Infinity,
          isCaptured: false,
          isUrgent: false,
          wasInDoubt: false,
          ...row,
        })),
      })
    },
    async untilDone(count) {
      await until(`${count} results`, () => results.length >= count)
      return results.toSorted((one, other) => one.claim - other.claim)
    },
  }
}

export const keysUpTo = (count: number): number[] => Array.from({ length: count }, (_none, index) => index + 1)
export const recipients = (server: ScriptedMx): string[] =>
  server.messages.map(({ to }) => to.slice(0, to.indexOf('@')))
