/**
 * The dialogue before the first message, one question at a time: each answer is a promise.
 *
 * Never rejects: the end of the connection is an answer too, and stays one. `handOver` gives the wire to the messages.
 */
import type { Socket } from 'node:net'
import type { RawReply } from './reply-reader.ts'
import { createSmtpWire } from './smtp-wire.ts'
import type { SmtpWire, WireEnd, WireStage } from './smtp-wire.ts'
import type { Transcript } from './transcript.ts'

export type Answer = { kind: 'reply'; reply: RawReply } | { kind: 'end'; end: WireEnd }

export interface OpeningDialogue {
  /** Waits for what the host says by itself. */
  hear(stage: WireStage, limitMilliseconds: number): Promise<Answer>
  ask(line: string, stage: WireStage, limitMilliseconds: number): Promise<Answer>
  /** How the connection has ended; undefined: it has not. */
  problem(): WireEnd | undefined
  /** A reply has begun that nobody asked for. */
  hasUnread(): boolean
  close(): void
  detach(): Socket
  /** From now on the end is told there. */
  handOver(onEnd: (end: WireEnd) => void): SmtpWire
}

export function createOpening(socket: Socket, transcript: Transcript | null): OpeningDialogue {
  let ended: WireEnd | undefined
  let onAnswer: ((answer: Answer) => void) | undefined
  let onEnd = (end: WireEnd): void => {
    ended = end
    onAnswer?.({ kind: 'end', end })
  }
  const wire = createSmtpWire(socket, (end) => onEnd(end))

  function wait(stage: WireStage, limitMilliseconds: number, line: string | null): Promise<Answer> {
    if (ended !== undefined) return Promise.resolve({ kind: 'end', end: ended })
    return new Promise((resolve) => {
      onAnswer = resolve
      const expectation = {
        stage,
        limitMilliseconds,
        transcript,
        answer: (reply: RawReply) => resolve({ kind: 'reply', reply }),
      }
      if (line === null) return wire.expect(expectation)
      transcript?.said(line)
      wire.say(`${line}\r\n`, [expectation])
    })
  }

  return {
    hear: (stage, limitMilliseconds) => wait(stage, limitMilliseconds, null),
    ask: (line, stage, limitMilliseconds) => wait(stage, limitMilliseconds, line),
    problem: () => ended,
    hasUnread: wire.hasUnread,
    close: wire.close,
    detach: wire.detach,
    handOver(listener) {
      onEnd = listener
      return wire
    },
  }
}
