/**
 * Looks at the database of a measured server, read-only and from outside: counts its rows, reads its file.
 */
import { createReadStream } from 'node:fs'
import { finished } from 'node:stream/promises'
import Database from 'better-sqlite3'
import pg from 'pg'
import { databasePath } from '../../src/store/sqlite/engine/database.ts'

export interface DatabaseFigures {
  messages: number
  delivered: number
  deliveredEvents: number
  webhookDeliveries: number
}

const COUNTS = {
  messages: 'select count(*) from messages',
  delivered: `select count(*) from messages where state = 'delivered'`,
  deliveredEvents: `select count(*) from events where kind = 'email.delivered'`,
  webhookDeliveries: 'select count(*) from webhook_deliveries',
} satisfies Record<keyof DatabaseFigures, string>

export async function readBackPostgres(url: string): Promise<DatabaseFigures> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    const found: Record<string, number> = {}
    for (const [name, query] of Object.entries(COUNTS)) {
      found[name] = Number((await client.query<{ count: string }>(query)).rows[0]?.count)
    }
    return found as unknown as DatabaseFigures
  } finally {
    await client.end()
  }
}

/** Brings all of it into the system's cache, where a server that works has it. */
export function readThrough(folder: string): Promise<void> {
  return finished(createReadStream(databasePath({ folder })).resume())
}

export function readBack(folder: string): DatabaseFigures {
  const database = new Database(databasePath({ folder }), { readonly: true })
  const count = (query: string): number => Number(database.prepare(query).pluck().get())
  try {
    return {
      messages: count(COUNTS.messages),
      delivered: count(COUNTS.delivered),
      deliveredEvents: count(COUNTS.deliveredEvents),
      webhookDeliveries: count(COUNTS.webhookDeliveries),
    }
  } finally {
    database.close()
  }
}
