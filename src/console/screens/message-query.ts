/**
 * The query of the messages: words with a colon name a field, the rest is an address. Pure. What is not understood is
 * told, and never left out in silence.
 */
import type { Parameters } from '../parts/api.ts'

type Reading = { parameters: Parameters; command: string } | { problem: string }

const FIELDS: Readonly<Record<string, { name: string; flag: string }>> = {
  to: { name: 'recipient', flag: '--recipient' },
  from: { name: 'from', flag: '--from' },
  status: { name: 'state', flag: '--state' },
  tag: { name: 'tag', flag: '--tag' },
  ip: { name: 'ip', flag: '--ip' },
  provider: { name: 'isp', flag: '--isp' },
  batch: { name: 'batch_id', flag: '--batch' },
  after: { name: 'since', flag: '--since' },
  before: { name: 'until', flag: '--until' },
}
/** A word, or a name and a value that may stand in quotes. */
const WORDS = /(?:(\w+):)?(?:"([^"]*)"|(\S+))/g

export function readQuery(text: string): Reading {
  const parameters: Parameters = {}
  let command = ''
  for (const [, name = '', quoted, plain = ''] of text.matchAll(WORDS)) {
    const value = quoted ?? plain
    const field = FIELDS[name === '' ? wordField(value) : name]
    if (field === undefined) {
      const what = name === '' ? `"${value}" is no address` : `${name}: is no field`
      return { problem: `${what}; there are the fields ${Object.keys(FIELDS).join(', ')}.` }
    }
    const given =
      name === 'after' || name === 'before' ? readTime(value) : name === 'tag' ? value.replace('=', ':') : value
    if (given === null) return { problem: `${name}:${value} is no time; write ${name}:2026-11-30 or ${name}:2h.` }
    parameters[field.name] = given
    command += ` ${field.flag} ${/^[\w@.+:-]+$/.test(value) ? value : `'${value.replaceAll("'", '')}'`}`
  }
  return { parameters, command }
}

/** What a word without a name is. */
function wordField(value: string): string {
  if (value.startsWith('bat_')) return 'batch'
  return value.includes('@') ? 'to' : value
}

const UNITS: Readonly<Record<string, number>> = { m: 60, h: 3_600, d: 86_400 }

/** Unix seconds of a day, or of a span before now. */
function readTime(value: string): number | null {
  const span = /^(\d{1,4})([mhd])$/.exec(value)
  if (span !== null) return Math.floor(Date.now() / 1000 - Number(span[1]) * (UNITS[span[2] ?? ''] ?? 0))
  const time = new Date(/^\d{4}-\d\d-\d\d$/.test(value) ? `${value}T00:00:00` : value).getTime()
  return Number.isNaN(time) ? null : Math.floor(time / 1000)
}
