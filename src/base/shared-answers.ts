/**
 * Answers of costly questions, for all who ask the same: each is found once for those who ask meanwhile, and kept for
 * ten times as long as that took, at most a minute. One is found at a time. A failure is for all who waited for it, and
 * not kept.
 */
import { LRUCache } from 'lru-cache'
import { MINUTE } from './clock.ts'

const KEPT_TIMES = 10
const MOST_KEPT = MINUTE
/** Of these, the one that nobody asked for longest is found anew. */
const MOST_ANSWERS = 20

export function createSharedAnswers<Answer extends {}>() {
  const answers = new LRUCache<string, Promise<Answer>>({ max: MOST_ANSWERS, ttlAutopurge: true, ttl: MOST_KEPT })
  let turn: Promise<unknown> = Promise.resolve()

  function findInTurn(question: string, find: () => Promise<Answer>): Promise<Answer> {
    let beganAt = 0
    const answer = turn.then(() => {
      beganAt = performance.now()
      return find()
    })
    // What was forgotten meanwhile is not kept.
    const isKept = (): boolean => answers.get(question) === answer
    turn = answer.then(
      () => {
        const ttl = Math.ceil(Math.min(MOST_KEPT, KEPT_TIMES * (performance.now() - beganAt)))
        if (isKept()) answers.set(question, answer, { ttl })
      },
      () => isKept() && answers.delete(question),
    )
    return answer
  }

  return {
    get(question: string, find: () => Promise<Answer>): Promise<Answer> {
      const known = answers.get(question)
      if (known !== undefined) return known
      const answer = findInTurn(question, find)
      // Until it is there.
      answers.set(question, answer, { ttl: 0 })
      return answer
    },
    /** Whoever asks from now on learns what is true now. */
    forget: (): void => answers.clear(),
  }
}
