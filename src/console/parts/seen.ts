/**
 * Whether somebody sees the page. A browser has six connections to a server for all tabs together (HTTP/1.1): one that
 * is not seen holds none, or the seventh tab would wait for ever.
 */

/** Runs `begin` whenever the page comes to be seen, and what it returned when it is no longer. Returns what ends it. */
export function whileSeen(begin: () => () => void): () => void {
  let end: (() => void) | null = null
  const look = (): void => {
    const isSeen = document.visibilityState === 'visible'
    if (isSeen === (end !== null)) return
    if (end === null) end = begin()
    else {
      end()
      end = null
    }
  }
  document.addEventListener('visibilitychange', look)
  look()
  return () => {
    document.removeEventListener('visibilitychange', look)
    end?.()
  }
}
