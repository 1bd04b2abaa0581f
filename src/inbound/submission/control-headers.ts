/**
 * The options of a submitted message, each at most once: X-Idempotency-Key, X-Tags, X-Pool and X-Track (
 * inbound/README.md "Submission").
 *
 * Only their form is judged here; acceptance judges the values as those of the API. Pure; never throws.
 */
import { decodeWords } from 'postal-mime'
import type { SubmissionRequest } from '../../messages/accept/send-request.ts'
import type { HeaderField } from '../../mail/report/mail-tree.ts'

type Controls = Pick<SubmissionRequest, 'tags' | 'ipPool' | 'track' | 'idempotencyKey'>

type ControlsReading = { ok: true; controls: Controls } | { ok: false; problem: string }

export function readControls(fields: readonly HeaderField[]): ControlsReading {
  const values = new Map<string, string>()
  for (const { name, value } of fields) {
    if (values.has(name)) return refuse(name, 'is given twice')
    if (value === '') return refuse(name, 'is empty')
    values.set(name, value)
  }
  const tags = readTags(values.get('x-tags'))
  if (tags === null) return refuse('x-tags', 'must be key=value, several separated by commas, no key twice')
  const track = readTrack(values.get('x-track'))
  if (track === null) return refuse('x-track', 'must be opens, clicks, opens,clicks or none')
  const ipPool = values.get('x-pool')
  return { ok: true, controls: { tags, track, ipPool, idempotencyKey: values.get('x-idempotency-key') } }
}

function refuse(name: string, problem: string): ControlsReading {
  return { ok: false, problem: `${name}: ${problem}` }
}

/** null: not of the form. */
function readTags(text: string | undefined): Record<string, string> | undefined | null {
  if (text === undefined) return undefined
  // A tag's value may hold further equals signs.
  const entries = listOf(decodeWords(text)).map((tag) => /^([^=]+)=(.*)$/u.exec(tag))
  const tags = new Map<string, string>()
  for (const entry of entries) {
    const key = entry?.[1]?.trim() ?? ''
    if (key === '' || tags.has(key)) return null
    tags.set(key, entry?.[2]?.trim() ?? '')
  }
  return Object.fromEntries(tags)
}

function readTrack(text: string | undefined): { opens: boolean; clicks: boolean } | undefined | null {
  if (text === undefined) return undefined
  const kinds = listOf(text.toLowerCase())
  if (kinds.length === 1 && kinds[0] === 'none') return { opens: false, clicks: false }
  if (!kinds.every((kind) => kind === 'opens' || kind === 'clicks')) return null
  return { opens: kinds.includes('opens'), clicks: kinds.includes('clicks') }
}

function listOf(text: string): string[] {
  return text.split(',').map((entry) => entry.trim())
}
