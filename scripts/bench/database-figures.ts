/**
 * Counts the rows of the database that a measured server wrote, read-only and from outside.
 */
import { join } from 'node:path'
import Database from 'better-sqlite3'

export interface DatabaseFigures {
  messages: number
  delivered: number
  deliveredEvents: number
  webhookDeliveries: number
}

export function readBack(folder: string): DatabaseFigures {
  const database = new Database(join(folder, 'sternpost.db'), { readonly: true })
  const count = (query: string): number => Number(database.prepare(query).pluck().get())
  try {
    return {
      messages: count('select count(*) from messages'),
      delivered: count(`select count(*) from messages where state = 'delivered'`),
      deliveredEvents: count(`select count(*) from events where kind = 'email.delivered'`),
      webhookDeliveries: count('select count(*) from webhook_deliveries'),
    }
  } finally {
    database.close()
  }
}
