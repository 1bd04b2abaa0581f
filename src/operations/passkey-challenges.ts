/**
 * Challenges of passkeys. Nothing is stored, so strangers push out nobody's, and every node takes those of the others: a
 * challenge holds when it was made, and is signed, with a key of its own, for what it may be answered to. That each is
 * answered once is for the store: a passkey takes none from before its last use.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { MINUTE, type Clock } from '../base/clock.ts'
import type { KeyRing } from '../base/key-ring.ts'

interface ChallengesOptions {
  clock: Clock
  keyRing: Pick<KeyRing, 'key'>
}

const LIFETIME = 5 * MINUTE
/**
 * How far ahead the last use may be that an accepted challenge was answered with: made at most LIFETIME ahead, it was
 * answered within another, by whatever clock.
 */
export const FARTHEST_USE = 2 * LIFETIME
const TIME_BYTES = 6
const RANDOM_BYTES = 16
const HEAD_BYTES = TIME_BYTES + RANDOM_BYTES
const MAC_BYTES = 16

export type PasskeyChallenges = ReturnType<typeof createPasskeyChallenges>

export function createPasskeyChallenges({ clock, keyRing }: ChallengesOptions) {
  const macOf = (head: Buffer, purpose: readonly string[]): Buffer => {
    const text = JSON.stringify([...purpose, head.toString('hex')])
    return createHmac('sha256', keyRing.key('passkey')).update(text).digest().subarray(0, MAC_BYTES)
  }
  return {
    make(...purpose: string[]): Uint8Array<ArrayBuffer> {
      const time = Buffer.alloc(TIME_BYTES)
      time.writeUIntBE(clock.now(), 0, TIME_BYTES)
      const head = Buffer.concat([time, randomBytes(RANDOM_BYTES)])
      return new Uint8Array(Buffer.concat([head, macOf(head, purpose)]))
    },
    /**
     * When it was made, in Unix milliseconds; null: its time is over, it is from a clock that is more than LIFETIME
     * ahead, or it was not made here for this purpose.
     */
    madeAt(challenge: string, ...purpose: string[]): number | null {
      const bytes = Buffer.from(challenge, 'base64url')
      if (bytes.length !== HEAD_BYTES + MAC_BYTES) return null
      const [head, mac] = [bytes.subarray(0, HEAD_BYTES), bytes.subarray(HEAD_BYTES)]
      if (!timingSafeEqual(mac, macOf(head, purpose))) return null
      const madeAt = head.readUIntBE(0, TIME_BYTES)
      return Math.abs(madeAt - clock.now()) < LIFETIME ? madeAt : null
    },
  }
}
