/**
 * One HTTP request for each number: a route of the table, the body of its example, and what is wrong with it. The same
 * seed and number give the same request, but for the ids of what the server has made meanwhile.
 */
import type { Route } from '../../src/http/exchange/route.ts'
import { EXAMPLES } from '../../src/http/openapi/examples.ts'
import { randomSource, type RandomSource } from '../support/random-source.ts'
import { describedRoutes } from '../support/response-check.ts'
import { SENDING_DOMAIN } from '../support/two-ips.ts'
import { BAD_TEXTS, mutateBytes, mutateValue, writeJson } from './bad-values.ts'

export interface FuzzedRequest {
  /** The route, and what is wrong: for the report. */
  name: string
  bytes: Buffer
  method: string
  target: string
  /** It is the last of its connection; what answers it may be several answers, or none. */
  isLast: boolean
  /** It is not whole. */
  isCut: boolean
  /** It is whole, and followed by what may end the connection before its answer. */
  mayBeUnheard: boolean
  /** Of the base of the body: of this request alone. */
  recipient: string
  isKeyWrong: boolean
}

/** Ids that the server gave out, by the name of the parameter. */
export type KnownIds = Record<string, string[]>

type Mutate = (draft: Draft, random: RandomSource) => void

interface Draft {
  route: Route
  method: string
  path: string
  query: string
  headers: [string, string][]
  body: Buffer
  framing: 'length' | 'chunked' | 'cut' | 'longer' | 'shorter' | 'both' | 'bad-chunks' | 'garbage-behind' | 'twice'
  isKeyWrong: boolean
}

/** Bodies of what stands in no contract. */
const OTHER_BODIES: Record<string, unknown> = {
  'POST /admin/queue/actions': { action: 'hold', filter: { recipient_domain: 'good9.test' }, dry_run: false },
  'POST /admin/paths/resume': { ip: '127.0.0.11', dry_run: false },
  'POST /admin/ips/:ip/suspend': { provider: null, reason: 'fuzz' },
  'POST /admin/ips/:ip/resume': {},
  'POST /admin/log-level': { level: 'info', for_seconds: 1 },
  'POST /admin/reload': { dry_run: true },
  'POST /admin/backups': {},
  'POST /admin/certificates/:name/renew': { new_key: true },
  'POST /admin/nodes/:node_id/drain': { draining: true },
}
/** Most of the mail; what costs the server seconds comes once in a while. */
const WEIGHTS: Record<string, number> = {
  '/email/send': 8,
  '/email/batch': 3,
  '/admin/backups': 0.02,
  '/admin/checks': 0.02,
  '/openapi.json': 0.1,
}
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'get', 'PROPFIND', 'X', 'CONNECT']
const TYPES = [
  '',
  'text/plain',
  'application/json; charset=utf-16',
  'multipart/form-data',
  'APPLICATION/JSON',
  ';',
  '\x01',
]
const PATHS: ((path: string) => string)[] = [
  (path) => `${path}/`,
  (path) => `/${path}`,
  (path) => path.replaceAll('/', '//'),
  (path) => path.replaceAll('/', '%2f'),
  (path) => `${path}%00`,
  (path) => `${path}/..;/`,
  (path) => `${path}/%2e%2e/keys`,
  (path) => `${path};jsessionid=1`,
  (path) => path.toUpperCase(),
  (path) => `http://evil.test${path}`,
  (path) => `${path}/${'a'.repeat(17_000)}`,
  (path) => path.slice(1),
  (path) => `${path}\xff`,
  (path) => `${path}%zz%`,
  () => '*',
  () => '/v1',
  () => '/',
  () => '/v1/__proto__/constructor',
]
const HEADERS: [string, string][] = [
  ['Content-Encoding', 'gzip'],
  ['Expect', '100-continue'],
  ['Expect', 'tea'],
  ['Idempotency-Key', ''],
  ['Idempotency-Key', 'k'.repeat(300)],
  ['Idempotency-Key', 'caf\xe9'],
  ['Idempotency-Key', 'the-same'],
  ['Idempotency-Key', 'the-same-2'],
  ['Host', 'evil.test'],
  ['Authorization', 'Basic Og=='],
  ['Transfer-Encoding', 'gzip, chunked'],
  ['Transfer-Encoding', 'identity'],
  ['Content-Length', '-1'],
  ['Content-Length', '18446744073709551617'],
  ['Content-Length', '5, 5'],
  ['Upgrade', 'websocket'],
  ['Connection', 'close, upgrade'],
  ['X-Forwarded-For', "127.0.0.1, ' or 1"],
  ['X-Long', 'z'.repeat(20_000)],
  ['X-Nul', 'a\0b'],
  ['X-Fold', 'a\r\n b'],
  ['X Bad', 'name'],
  ['Accept', 'text/html;q=1e400'],
  ['Range', 'bytes=-1'],
  ['Last-Event-ID', '\x7f'],
  ['X-HTTP-Method-Override', 'DELETE'],
]

const MUTATIONS: Record<string, Mutate> = {
  nothing: () => {},
  value: mutateExample,
  'another value': mutateExample,
  bytes: (draft, random) => void (draft.body = mutateBytes(draft.body, random)),
  path: (draft, random) => void (draft.path = random.oneOf(PATHS)(draft.path)),
  query: (draft, random) => void (draft.query = oddQuery(draft.route, random)),
  method: (draft, random) => void (draft.method = random.oneOf(METHODS)),
  type: (draft, random) => {
    draft.headers = [
      ...draft.headers.filter(([name]) => name !== 'Content-Type'),
      ['Content-Type', random.oneOf(TYPES)],
    ]
  },
  headers: (draft, random) => {
    for (let count = 0; count <= random.integer(3); count++) draft.headers.push(random.oneOf(HEADERS))
  },
  key: (draft, random) => {
    const wrong = random.oneOf(['Bearer ', 'Bearer sk_live_x', 'Token x', `Bearer ${'k'.repeat(9_000)}`, 'Bearer \xff'])
    draft.isKeyWrong = true
    draft.headers = draft.headers.filter(([name]) => name !== 'Authorization')
    if (random.integer(3) > 0) draft.headers.push(['Authorization', wrong])
  },
  framing: (draft, random) => {
    draft.framing = random.oneOf([
      'chunked',
      'cut',
      'longer',
      'shorter',
      'both',
      'bad-chunks',
      'garbage-behind',
      'twice',
    ] as const)
  },
}
const NAMES = Object.keys(MUTATIONS)
/** What follows the request may end the connection before its answer is written. */
const UNHEARD_FRAMINGS = new Set(['garbage-behind', 'shorter', 'both', 'bad-chunks'])

const routes = describedRoutes()
const weighted = routes.map((route) => WEIGHTS[route.path] ?? 1)
const allWeights = weighted.reduce((sum, weight) => sum + weight, 0)

export function fuzzedRequest(seed: number, index: number, key: string, known: KnownIds): FuzzedRequest {
  const random = randomSource(seed * 1_000_003 + index + 1)
  const route = chooseRoute(random)
  const recipient = `r${index}@good${index % 10}.test`
  const draft = draftOf(route, recipient, key, known, random)
  const honest = draft.body
  const chosen = [random.oneOf(NAMES), ...(random.integer(3) === 0 ? [random.oneOf(NAMES)] : [])]
  for (const name of chosen) MUTATIONS[name]?.(draft, random)
  const { method, framing, isKeyWrong } = draft
  const mayBeUnheard = chosen.includes('headers') || UNHEARD_FRAMINGS.has(framing)
  // Its recipient has to be known.
  if (mayBeUnheard) draft.body = honest
  const target = draft.query === '' ? draft.path : `${draft.path}?${draft.query}`
  return {
    name: `${route.method} ${route.path}: ${chosen.join(', ')}`,
    bytes: toBytes(draft, target),
    method,
    target,
    recipient,
    isKeyWrong,
    mayBeUnheard,
    isCut: framing === 'cut' || framing === 'longer',
    isLast: chosen.includes('headers') || !['length', 'chunked'].includes(framing) || method === 'CONNECT',
  }
}

function chooseRoute(random: RandomSource): Route {
  let left = random.next() * allWeights
  const index = weighted.findIndex((weight) => (left -= weight) < 0)
  return routes[index] ?? random.oneOf(routes)
}

function exampleOf({ method, path }: Route): unknown {
  const name = `${method} ${path}`
  return EXAMPLES[name]?.request ?? OTHER_BODIES[name] ?? {}
}

function draftOf(route: Route, recipient: string, key: string, known: KnownIds, random: RandomSource): Draft {
  const path = route.path.replace(/:(\w+)/g, (_all, name: string) => paramOf(name, known, random))
  const headers: [string, string][] = [
    ['Host', 'mail.sternpost.test'],
    ['Authorization', `Bearer ${key}`],
  ]
  if (route.body !== null) headers.push(['Content-Type', route.body.contentType])
  const body = route.body === null ? Buffer.alloc(0) : Buffer.from(addressed(exampleOf(route), recipient))
  const prefix = random.oneOf(['/v1', '/api/v1'])
  return {
    route,
    method: route.method,
    path: `${prefix}${path}`,
    query: '',
    headers,
    body,
    framing: 'length',
    isKeyWrong: false,
  }
}

/** What is no JSON, or no longer, is changed as bytes. */
function mutateExample(draft: Draft, random: RandomSource): void {
  try {
    draft.body = Buffer.from(writeJson(mutateValue(JSON.parse(draft.body.toString()), random)))
  } catch {
    draft.body = mutateBytes(mutateBytes(draft.body, random), random)
  }
}

/** As JSON, from our domain and to receivers that are there. */
function addressed(value: unknown, recipient: string): string {
  if (typeof value === 'string') return value
  const text = writeJson(value).replaceAll('@acme.com', `@${SENDING_DOMAIN}`)
  return text.replaceAll('ada@example.net', recipient).replaceAll('carol@example.org', `c${recipient}`)
}

function paramOf(name: string, known: KnownIds, random: RandomSource): string {
  if (random.integer(8) === 0) return encodeURIComponent(random.oneOf(BAD_TEXTS).toWellFormed()).slice(0, 4_000) || 'x'
  const ids = known[name] ?? []
  return ids.length === 0 ? 'x' : encodeURIComponent(random.oneOf(ids))
}

function oddQuery({ query }: Route, random: RandomSource): string {
  const shape = (query as { shape?: object } | null)?.shape ?? {}
  const names = [...Object.keys(shape), ...Object.keys(shape), 'limit', '__proto__', 'a[b]', '']
  const pair = (): string => `${random.oneOf(names)}=${encodeURIComponent(random.oneOf(BAD_TEXTS).toWellFormed())}`
  switch (random.integer(6)) {
    case 0:
      return '&'.repeat(500)
    case 1:
      return '%zz=%&=&%00=%c0%af'
    case 2:
      return `limit=${random.oneOf(['-1', '1e3', '0', '99999999999', '1&limit=2'])}`
    default:
      return Array.from({ length: 1 + random.integer(4) }, pair)
        .join('&')
        .slice(0, 12_000)
  }
}

function toBytes({ method, headers, body, framing }: Draft, target: string): Buffer {
  const head = (...more: string[]): string => {
    const lines = headers.map(([name, value]) => `${name}: ${value}`)
    return `${[`${method} ${target} HTTP/1.1`, ...lines, ...more].join('\r\n')}\r\n\r\n`
  }
  const length = `Content-Length: ${body.length}`
  const chunk = [Buffer.from(`${body.length.toString(16)};x=y\r\n`), body, Buffer.from('\r\n0\r\nX-Trailer: 1\r\n\r\n')]
  const parts = (text: string, ...more: Buffer[]): Buffer => Buffer.concat([Buffer.from(text, 'latin1'), ...more])
  switch (framing) {
    case 'chunked':
      return body.length === 0 ? parts(head(length)) : parts(head('Transfer-Encoding: chunked'), ...chunk)
    case 'cut':
      return parts(head(length), body.subarray(0, -1))
    case 'longer':
      return parts(head(`Content-Length: ${body.length + 10}`), body)
    case 'shorter':
      return parts(head(`Content-Length: ${Math.max(0, body.length - 3)}`), body)
    case 'both':
      return parts(head(length, 'Transfer-Encoding: chunked'), ...chunk)
    case 'bad-chunks':
      return parts(head('Transfer-Encoding: chunked'), Buffer.from('-5\r\n'), body, Buffer.from('\r\nzz\r\n'))
    case 'garbage-behind':
      return parts(head(length), body, Buffer.from('\0\0GARBAGE\r\n\r\n'))
    case 'twice':
      return parts(head(length), body, parts(head(length), body))
    case 'length':
      return parts(head(length), body)
  }
}
