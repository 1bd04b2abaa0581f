/**
 * Fuzzed requests at the API and fuzzed dialogues at all SMTP doors of a real server. Each has a number, and is made
 * from the seed and that number: `FUZZ_SEED=… FUZZ_FROM=… FUZZ_COUNT=1` repeats one. What must hold of every one: no
 * status of 5xx but 503, and no 451 for a fault of ours; each answer is what the contract says; the server lives; what
 * was accepted ends, and nothing arrives that was not accepted.
 */
import t, { type Test } from 'tap'
import { residentBytes } from '../../scripts/bench/process-figures.ts'
import { randomSource } from '../support/random-source.ts'
import { checkResponse } from '../support/response-check.ts'
import { startFuzzedServer, type FuzzedServer } from './fuzzed-server.ts'
import { fuzzedDialogue, type Door } from './fuzzed-dialogues.ts'
import { fuzzedRequest, type FuzzedRequest, type KnownIds } from './fuzzed-requests.ts'
import { openRawHttp, type RawAnswer, type RawHttp } from './raw-http.ts'
import { leadDialogue } from './raw-smtp.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const SEED = Number(process.env['FUZZ_SEED'] ?? 1)
const FROM = Number(process.env['FUZZ_FROM'] ?? 0)
const REQUESTS = Number(process.env['FUZZ_COUNT'] ?? (IS_FULL ? 100_000 : 400))
const DIALOGUES = Number(process.env['FUZZ_COUNT'] ?? (IS_FULL ? 20_000 : 80))
const REQUESTS_AT_ONCE = 8
const DIALOGUES_AT_ONCE = 24
const MEBIBYTE = 2 ** 20
/** What a server may grow by under all of this: windows of connections and caches fill up. */
const MOST_GROWTH = 400 * MEBIBYTE
/** More than this is a flood of one fault. */
const MOST_TOLD = 20
const SETTLED_WITHIN = IS_FULL ? 900_000 : 120_000

t.setTimeout(IS_FULL ? 7_200_000 : 300_000)

/** What did not hold, by the name of what was tried. */
const faults: string[] = []

function fault(name: string, index: number, thrown: unknown): void {
  faults.push(`${name} (FUZZ_SEED=${SEED} FUZZ_FROM=${index}): ${thrown instanceof Error ? thrown.message : thrown}`)
}

/** Works off the numbers in order, so many at once. */
async function forAll(count: number, atOnce: number, work: (index: number) => Promise<void>): Promise<void> {
  let next = FROM
  const worker = async (): Promise<void> => {
    for (let index = next++; index < FROM + count; index = next++) await work(index)
  }
  await Promise.all(Array.from({ length: atOnce }, worker))
}

function countOf(tally: Map<string, number>, name: string | number): void {
  tally.set(String(name), (tally.get(String(name)) ?? 0) + 1)
}

const textOf = (tally: Map<string, number>): string =>
  [...tally]
    .toSorted()
    .map((pair) => pair.join(': '))
    .join(', ')

t.test('fuzzed requests and dialogues', async (t) => {
  const scene = await startFuzzedServer(t)
  const before = residentBytes(scene.server.processId)
  t.comment(`${REQUESTS} requests: ${textOf(await fuzzRequests(scene))}`)
  t.comment(`${Math.round((residentBytes(scene.server.processId) - before) / MEBIBYTE)} MiB more memory behind them`)
  await scene.settle(SETTLED_WITHIN)
  for (const door of ['submission', 'reports'] as const) {
    t.comment(`${DIALOGUES} dialogues with ${door}: ${textOf(await fuzzDialogues(scene, door))}`)
  }
  await finish(t, scene, before)
})

/** Gives the statuses with their counts. */
async function fuzzRequests(scene: FuzzedServer): Promise<Map<string, number>> {
  // Not the domain that all mail is sent from: one DELETE, and the rest is refused.
  const known: KnownIds = { domain: ['acme.com'], ip: ['127.0.0.11', '203.0.113.10'], address: ['x@acme.org'] }
  const statuses = new Map<string, number>()
  const lanes = new Map<number, RawHttp>()
  await forAll(REQUESTS, REQUESTS_AT_ONCE, async (index) => {
    const asked = fuzzedRequest(SEED, index, scene.key, known)
    try {
      const answers = await exchange(asked, index, scene.httpPort, lanes)
      if (answers.length === 0) countOf(statuses, 'none')
      if (asked.mayBeUnheard) doubtAll(scene, asked.recipient)
      for (const answer of answers) {
        countOf(statuses, answer.status)
        judgeAnswer(asked, answer, scene, known)
      }
    } catch (thrown) {
      fault(asked.name, index, thrown)
    }
  })
  for (const lane of lanes.values()) lane.close()
  return statuses
}

/** A lane each for what goes on; a connection and an address of its own for what is last, or has a wrong key. */
async function exchange(
  { bytes, method, isLast, isCut, isKeyWrong }: FuzzedRequest,
  index: number,
  port: number,
  lanes: Map<number, RawHttp>,
): Promise<RawAnswer[]> {
  const isHead = method === 'HEAD'
  if (isLast || isKeyWrong) {
    const own = await openRawHttp(port, addressOf(index))
    try {
      if (isLast && !isHead) return await own.askLast(bytes, isCut)
      const answer = await own.ask(bytes, isHead)
      return answer === null ? [] : [answer]
    } finally {
      own.close()
    }
  }
  const free = [...lanes].find(([, lane]) => lane.isOpen)
  if (free !== undefined) lanes.delete(free[0])
  const lane = free?.[1] ?? (await openRawHttp(port, '127.0.0.1'))
  const answer = await lane.ask(bytes, isHead).catch((thrown: unknown) => {
    lane.close()
    throw thrown
  })
  if (lane.isOpen) lanes.set(index, lane)
  return answer === null ? [] : [answer]
}

/** Sixteen million of them, so that no address meets the limits for one. */
function addressOf(index: number): string {
  return `127.${100 + ((index >> 16) % 100)}.${(index >> 8) % 256}.${1 + (index % 254)}`
}

function doubtAll({ ledger }: FuzzedServer, recipient: string): void {
  for (const address of [recipient, `c${recipient}`]) ledger.doubt(address)
}

const METHOD_ROUTES = new Set(['GET', 'HEAD', 'POST', 'PATCH', 'DELETE'])
/** Zone files, streams, and the html of a mail where the request accepts that. */
const PLAIN_TYPES = /^text\/(?:plain|event-stream|html)/
const IDS: [name: string, pattern: RegExp][] = [
  ['message_id', /msg_[0-9a-z]{26}/],
  ['batch_id', /bat_[0-9a-z]{26}/],
  ['whd', /whd_[0-9a-z]{26}/],
  ['id', /(?:wh|key)_[0-9a-z]{26}/],
]
const KEPT_IDS = 30

function judgeAnswer(asked: FuzzedRequest, answer: RawAnswer, scene: FuzzedServer, known: KnownIds): void {
  const { status, headers, body: text } = answer
  if (status >= 500 && status !== 503) throw new Error(`answered ${status}: ${text.slice(0, 300)}`)
  if (asked.method === 'HEAD') return
  const type = headers.get('content-type') ?? ''
  if (PLAIN_TYPES.test(type) && status === 200) return
  if (!type.startsWith('application/json')) throw new Error(`${status} with the type ${type}: ${text.slice(0, 300)}`)
  const body = JSON.parse(text) as SendAnswer
  const path = asked.target.replace(/^http:\/\/[^/]*/, '')
  if (METHOD_ROUTES.has(asked.method) || status >= 400) checkResponse({ method: asked.method, path, status, body })
  else throw new Error(`${asked.method} answered ${status}`)
  if (status >= 400) return
  if (asked.method === 'POST' && path.includes('/email/')) {
    const ids = [body.message_id, body.data?.message_id, ...(body.results ?? []).map(({ message_id: id }) => id)]
    for (const id of ids) if (id !== undefined) scene.ledger.accept(id)
  }
  for (const [name, pattern] of IDS) {
    const found = pattern.exec(text)?.[0]
    if (found === undefined || scene.ownIds.includes(found)) continue
    known[name] = [...(known[name] ?? []).slice(-KEPT_IDS), found]
  }
}

interface SendAnswer {
  message_id?: string
  data?: { message_id?: string }
  results?: { message_id?: string }[]
}

const SUBMISSION_DOORS: readonly Door[] = ['submission', 'submission', 'submission', 'starttls', 'implicit']

/** Gives the codes of the replies with their counts. */
async function fuzzDialogues(scene: FuzzedServer, kind: 'submission' | 'reports'): Promise<Map<string, number>> {
  const replies = new Map<string, number>()
  await forAll(DIALOGUES, DIALOGUES_AT_ONCE, async (index) => {
    const door = kind === 'reports' ? kind : randomSource(index + 1).oneOf(SUBMISSION_DOORS)
    const dialogue = fuzzedDialogue({ seed: SEED, index, door }, scene.key, scene.returnPaths)
    if (dialogue.mayBeUnheard) for (const recipient of dialogue.recipients) scene.ledger.doubt(recipient)
    try {
      judgeReplies(await leadDialogue(dialogue, scene.ports[door], addressOf(index)), scene, replies)
    } catch (thrown) {
      fault(dialogue.name, index, thrown)
    }
  })
  return replies
}

/** A code, an enhanced code but for the greeting, EHLO, AUTH and DATA, and words without controls (RFC 5321 §4.2). */
const REPLY = /^[2-5]\d\d[- ](?:[245]\.\d{1,3}\.\d{1,3} )?[^\p{Cc}]*$/u
/** Replies for a fault of ours. */
const OUR_FAULT = /^451 4\.3\.0 /

function judgeReplies(text: string, { ledger }: FuzzedServer, replies: Map<string, number>): void {
  const lines = text.split('\r\n')
  if (lines.pop() !== '') throw new Error(`a reply without an end: ${JSON.stringify(text.slice(-200))}`)
  for (const line of lines) {
    if (!REPLY.test(line)) throw new Error(`no reply: ${JSON.stringify(line)}`)
    if (OUR_FAULT.test(line)) throw new Error(line)
    if (line[3] === ' ') countOf(replies, line.slice(0, 3))
    if (line.startsWith('250')) for (const [id] of line.matchAll(/msg_[0-9a-z]{26}/g)) ledger.accept(id)
  }
}

/** Everything accepted ends; then the server is stopped in order, and everything is counted. */
async function finish(t: Test, scene: FuzzedServer, before: number): Promise<void> {
  const { server, ledger, busiest } = scene
  t.equal(server.exitCode(), null, 'the server lives')
  await scene.settle(SETTLED_WITHIN)
  const grown = residentBytes(server.processId) - before
  const stopped = await server.stop()
  const lost = ledger.judge(server.databaseFolder)
  t.comment(`${ledger.accepted.size} messages accepted, ${ledger.arrived.size} arrived`)
  t.comment(`${(grown / MEBIBYTE).toFixed(0)} MiB more memory; longest turns (goal 100 ms): ${busiest().join(', ')}`)
  for (const text of [...faults, ...lost].slice(0, MOST_TOLD)) t.comment(text)
  t.equal(faults.length, 0, 'every answer is as it should be')
  t.equal(lost.length, 0, 'what was accepted ended once, and arrived once or not at all; nothing else arrived')
  t.ok(ledger.arrived.size > 0, 'some of it was mail')
  t.ok(grown < MOST_GROWTH, `memory grew by ${grown} bytes`)
  t.equal(stopped, 0)
}
