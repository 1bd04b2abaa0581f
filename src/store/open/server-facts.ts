/** Of the server that holds the data; the driver of PostgreSQL is loaded where it is needed. */
import type { PostgresFacts } from '../postgresql/server-facts.ts'

export type { PostgresFacts } from '../postgresql/server-facts.ts'

export async function postgresFacts(url: string): Promise<PostgresFacts> {
  const { findPostgresFacts } = await import('../postgresql/server-facts.ts')
  return findPostgresFacts(url)
}
