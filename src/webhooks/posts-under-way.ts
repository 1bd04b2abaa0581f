/**
 * The posts that are under way, each until its end, and which of them do not end.
 *
 * A post ends within 10 s by its own limit. One that is still there at two looks in a row has been under way for at
 * least the time between them, by timers alone, whatever the clocks say: nobody waits for it any more. Never throws.
 */
import type { ClaimedWebhookDelivery } from '../store/records/webhook-records.ts'

export interface Post {
  delivery: ClaimedWebhookDelivery
  /** On the clock of the schedule, Unix milliseconds. */
  at: number
  /** In milliseconds of the monotonic clock. */
  begunAt: number
}

interface PostsUnderWay {
  begin(post: Post): void
  /** False: it was let go before, and somebody else has its delivery. */
  end(post: Post): boolean
  has(delivery: string): boolean
  size(): number
  all(): Post[]
  /** Those that were under way at the look before already. */
  look(): Post[]
  /** Resolves when none is left. */
  ended(): Promise<void>
}

export function createPostsUnderWay(): PostsUnderWay {
  /** By the id of the delivery. */
  const posts = new Map<string, Post>()
  let seen = new Set<Post>()
  let tellEnded: (() => void)[] = []

  return {
    begin: (post) => void posts.set(post.delivery.id, post),
    end(post) {
      if (posts.get(post.delivery.id) !== post) return false
      posts.delete(post.delivery.id)
      if (posts.size > 0) return true
      for (const tell of tellEnded) tell()
      tellEnded = []
      return true
    },
    has: (delivery) => posts.has(delivery),
    size: () => posts.size,
    all: () => [...posts.values()],
    look() {
      const now = [...posts.values()]
      const overdue = now.filter((post) => seen.has(post))
      seen = new Set(now)
      return overdue
    },
    ended: () => (posts.size === 0 ? Promise.resolve() : new Promise((resolve) => void tellEnded.push(resolve))),
  }
}
