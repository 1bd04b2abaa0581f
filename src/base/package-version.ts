/** The version of this program, from package.json. */
import { readFileSync } from 'node:fs'

export function packageVersion(): string {
  const description: unknown = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))
  const hasVersion = typeof description === 'object' && description !== null && 'version' in description
  return hasVersion ? String(description.version) : 'unknown'
}
