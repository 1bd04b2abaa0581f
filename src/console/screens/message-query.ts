/**
 * The query of the messages: words with a colon name a field; of the others, one with @ is the recipient, the rest are
 * words of the subject. Pure. What is not understood is told, and never left out in silence.
 */
import type { Parameters } from '../parts/api.ts'
import { nowSeconds, shellWord } from '../parts/format.ts'

type Reading = { parameters: Parameters; command: string } | { problem: string }

const FIELDS: Readonly<Record<string, { name: string; flag: string }>> = {
  to: { name: 'recipient', flag: '--recipient' },
  from: { name: 'from', flag: '--from' },
  subject: { name: 'subject', flag: '--subject' },
  status: { name: 'state', flag: '--state' },
  tag: { name: 'tag', flag: '--tag' },
  ip: { name: 'ip', flag: '--ip' },
  provider: { name: 'isp', flag: '--isp' },
  batch: { name: 'batch_id', flag: '--batch' },
  after: { name: 'since', flag: '--since' },
  before: { name: 'until', flag: '--until' },
}
// A Message-ID or a return path of ours: the API takes the token alone as well.
const TOKEN_ADDRESS = /^<?(?:[a-z]-)?([a-z2-7]{48})@[^@]+$/i

/** The one message that the text names, as it stands in a path of the API. */
export function namedMessage(text: string): string | undefined {
  return /^msg_\w+$/.exec(text)?.[0] ?? TOKEN_ADDRESS.exec(text)?.[1]
}

/** A word, or a name and a value that may stand in quotes. */
const WORDS = /(?:(\w+):)?(?:"([^"]*)"|(\S+))/g

export function readQuery(text: string): Reading {
  const given: Parameters = {}
  for (const [, name = '', quoted, plain = ''] of text.matchAll(WORDS)) {
    const value = quoted ?? plain
    const key = name === '' ? wordField(value) : name
    if (!Object.hasOwn(FIELDS, key)) {
      return { problem: `${name}: is no field; there are ${Object.keys(FIELDS).join(', ')}.` }
    }
    given[key] = key === 'subject' && given[key] !== undefined ? `${given[key]} ${value}` : value
  }
  const parameters: Parameters = {}
  let command = ''
  for (const [key, { name, flag }] of Object.entries(FIELDS)) {
    const value = given[key]
    if (typeof value !== 'string') continue
    const read = readValue(key, value)
    if (read === null) return { problem: `${key}:${value} is no time; write ${key}:2026-11-30 or ${key}:2h.` }
    parameters[name] = read
    command += ` ${flag} ${shellWord(value)}`
  }
  return { parameters, command }
}

/** What a word without a name is. */
function wordField(value: string): string {
  if (value.startsWith('bat_')) return 'batch'
  return value.includes('@') ? 'to' : 'subject'
}

/** null: it cannot be read. */
function readValue(key: string, value: string): string | number | null {
  if (key === 'after' || key === 'before') return readTime(value)
  return key === 'tag' ? value.replace('=', ':') : value
}

const UNITS: Readonly<Record<string, number>> = { m: 60, h: 3_600, d: 86_400 }

/** Unix seconds of a day, or of a span before now. */
function readTime(value: string): number | null {
  const span = /^(\d{1,4})([mhd])$/.exec(value)
  if (span !== null) return Math.floor(nowSeconds() - Number(span[1]) * (UNITS[span[2] ?? ''] ?? 0))
  const time = new Date(/^\d{4}-\d\d-\d\d$/.test(value) ? `${value}T00:00:00` : value).getTime()
  return Number.isNaN(time) ? null : Math.floor(time / 1000)
}
