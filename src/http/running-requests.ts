/**
 * Counts requests from their arrival until their answer is out or the connection is gone, so that a stop can wait.
 */
import type { ServerResponse } from 'node:http'

export interface RunningRequests {
  add(response: ServerResponse): void
  /** Resolves when none is left, or after this time. */
  finished(mostMilliseconds: number): Promise<void>
}

export function createRunningRequests(): RunningRequests {
  let count = 0
  let onNone = (): void => {}
  const onClose = (): void => {
    count -= 1
    if (count === 0) onNone()
  }
  return {
    add(response) {
      count += 1
      response.once('close', onClose)
    },
    finished(mostMilliseconds) {
      return new Promise((resolve) => {
        if (count === 0) return resolve()
        const timer = setTimeout(resolve, mostMilliseconds)
        onNone = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    },
  }
}
