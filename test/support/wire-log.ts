/**
 * What delivery threads without a wire wrote down (`wireless-thread.ts`), one line for each RCPT.
 */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

export interface SeenRecipient {
  /** By the clock of the appliance, in milliseconds. */
  at: number
  /** The IP it came from. */
  source: string
  recipientDomain: string
  /** Names the message: its id, or its recipient where each message has another one. */
  message: string
}

export function wireLogIn(dataFolder: string): string {
  return join(dataFolder, 'wire.log')
}

/** A kill can end a write in the middle: the line behind begins anew, and what has no end was never sent. */
export function lineOf({ at, source, recipientDomain, message }: SeenRecipient): string {
  return `\n${at} ${source} ${recipientDomain} ${message}${END}`
}

const END = ' .'

export function readWireLog(dataFolder: string): SeenRecipient[] {
  const file = wireLogIn(dataFolder)
  if (!existsSync(file)) return []
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line.endsWith(END))
    .map((line) => {
      const [at = '', source = '', recipientDomain = '', message = ''] = line.split(' ')
      return { at: Number(at), source, recipientDomain, message }
    })
}
