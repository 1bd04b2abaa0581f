/**
 * What the command line of the bench asks for. Ends with exit 64 and one line for what it does not know.
 */
import { parseArgs } from 'node:util'

/** Measurements beside the whole way; each is a file of its own. */
export const PARTS = [
  'whole',
  'batch',
  'engines',
  'accept',
  'delivery',
  'clicks',
  'lookups',
  'latency',
  'growth',
  'console',
  'profile',
] as const
export type Part = (typeof PARTS)[number]

export interface BenchOptions {
  parts: ReadonlySet<Part>
  /** Kilobytes of html. */
  sizes: readonly number[]
  messages: number
  clients: number
  runs: number
  /** Messages that lookups and growth fill the database with. */
  stored: number
  isJson: boolean
  haraka: string | undefined
}

const USUAL_PARTS: readonly Part[] = ['whole', 'batch', 'accept', 'delivery', 'clicks', 'lookups']
const MISUSE = 64

export const USAGE = `npm run bench -- [options]
  --quick        only the whole way of the 10 KB message, in seven minutes
  --full         every part, growth with 1,000,000 messages; half an hour or more
  --only LIST    of ${PARTS.join(', ')}; default ${USUAL_PARTS.join(',')}
  --latency      only the delay proxy: 50 ms round trip, 1,000 connections
  --engines      only the whole way on SQLite and on PostgreSQL, in turns
  --growth       only growth: 20,000 and 1,000,000 queued (--stored), 5,000 destinations, 64 IPs, choosing an IP
  --console      only the console in Debian's Chromium, beside 1,000,000 messages (--stored)
  --profile      only the CPU profile of the whole way, by stage
  --messages N   of one run, default 3000        --clients N  that post at once, default 50
  --runs N       alternating, default 3        --stored N   default 100000, with --growth or --full 1000000
  --haraka DIR   where \`npm install Haraka haraka-plugin-dkim\` was run; left out: haraka in PATH
  --json         one document instead of the tables
`

export function readOptions(args: readonly string[]): BenchOptions {
  try {
    return toOptions(args)
  } catch (thrown) {
    process.stderr.write(`bench: ${thrown instanceof Error ? thrown.message : String(thrown)}\n${USAGE}`)
    process.exit(MISUSE)
  }
}

function toOptions(args: readonly string[]): BenchOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: 'boolean' },
      full: { type: 'boolean' },
      latency: { type: 'boolean' },
      engines: { type: 'boolean' },
      growth: { type: 'boolean' },
      console: { type: 'boolean' },
      profile: { type: 'boolean' },
      only: { type: 'string' },
      json: { type: 'boolean' },
      haraka: { type: 'string' },
      messages: { type: 'string' },
      clients: { type: 'string', default: '50' },
      runs: { type: 'string', default: '3' },
      stored: { type: 'string' },
    },
  })
  const named = (values.only ?? '').split(',').filter((name) => name !== '')
  const alone = PARTS.filter((part) => named.includes(part) || (part in values && values[part as 'latency'] === true))
  const unknown = named.find((name) => !PARTS.some((part) => part === name))
  if (unknown !== undefined) throw new Error(`there is no part ${unknown}`)
  const usual = values.full === true ? PARTS : values.quick === true ? ['whole' as const] : USUAL_PARTS
  const withGrowth = values.growth === true || values.console === true || values.full === true
  return {
    parts: new Set(alone.length > 0 ? alone : usual),
    sizes: values.quick === true ? [10] : [10, 50],
    messages: count('messages', values.messages ?? '3000'),
    clients: count('clients', values.clients),
    runs: count('runs', values.runs),
    stored: count('stored', values.stored ?? (withGrowth ? '1000000' : '100000')),
    isJson: values.json === true,
    haraka: values.haraka,
  }
}

function count(name: string, text: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value) || value < 1) throw new Error(`--${name} must be a whole number from 1`)
  return value
}
