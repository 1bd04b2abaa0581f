/** What a handler answers with, and what its route promises of it (http/README.md "Conventions"). Pure. */
import { z } from 'zod'
import { dataSchema, listSchema } from '../../api/envelope.ts'

export const JSON_CONTENT_TYPE = 'application/json; charset=utf-8'

export interface Answer {
  status: number
  /** Sent as JSON; a text is sent as it is. */
  body: object | string
  /** Of a text; left out: plain. */
  contentType?: 'text/csv; charset=utf-8' | 'text/html; charset=utf-8' | typeof JSON_CONTENT_TYPE
  /** In place of the body: sent piece by piece, as it comes, until the client is gone or the server stops. */
  stream?: (ended: AbortSignal) => AsyncIterable<string>
}

/** What a success looks like. */
export interface OkAnswer {
  status: number
  /** A second status with the same body, e.g. 200 where nothing new was made. */
  otherStatus?: number
  /** Of the whole body. */
  schema: z.ZodType
  /** Left out: JSON. */
  contentType?: 'text/plain' | 'text/event-stream'
  /** What it may be in place of that, for who accepts it. */
  otherType?: 'text/csv' | 'text/html'
}

export const OK = 200
export const CREATED = 201
export const ACCEPTED = 202

/** The body of every success but the send result (http/README.md "Conventions"). */
export function success(data: object, status = OK): Answer {
  return { status, body: { success: true, data } }
}

export function okData(data: z.ZodType, status = OK): OkAnswer {
  return { status, schema: dataSchema(data) }
}

/** A page of a list; `next` is the cursor of the page after it, or null. */
export function successList(entries: readonly object[], next: string | null = null): Answer {
  return { status: OK, body: { success: true, data: entries, has_more: next !== null, next_cursor: next } }
}

export function okList(entry: z.ZodType): OkAnswer {
  return { status: OK, schema: listSchema(entry) }
}
