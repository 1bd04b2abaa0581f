/**
 * X-Service-Warnings: names of unknown fields and other notices, comma-separated, ASCII, at most 1,000 bytes
 * (http/README.md "Conventions"). What does not fit is left out; nothing here throws.
 */
import type { ServerResponse } from 'node:http'

const HEADER = 'X-Service-Warnings'
const MOST_BYTES = 1_000

export interface Warnings {
  add(text: string): void
}

export function createWarnings(response: ServerResponse): Warnings {
  let value = ''
  return {
    add(text) {
      const longer = value === '' ? escape(text) : `${value},${escape(text)}`
      if (longer.length > MOST_BYTES) return
      value = longer
      response.setHeader(HEADER, value)
    },
  }
}

/** Everything but printable ASCII, and the comma that separates, and the backslash that escapes. */
const UNSAFE = /[^\x20-\x2b\x2d-\x5b\x5d-\x7e]/g

function escape(text: string): string {
  return text.replace(UNSAFE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
