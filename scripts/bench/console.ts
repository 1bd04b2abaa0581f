/**
 * The console beside many stored messages, in Debian's Chromium: how long until a screen's data is painted, how many
 * bytes it is, what five people who click cost everybody else, and what twenty pages that are open cost the throughput.
 *
 * People and pages of the last two are played, with the requests and streams that the browser would make, so that no
 * browser takes the cores from the server that is measured.
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Agent, request } from 'undici'
import { goTo, logIn, openPage, startBrowser, type WatchedPage } from '../../test/support/browser.ts'
import { freePort } from '../../test/support/serve-process.ts'
import { fillDatabase, recipientOf, subjectOf, tagOf } from './console-filler.ts'
import { median, percentile, threeDigits } from './figures.ts'
import { createProgress } from './growth-progress.ts'
import { runLoad } from './load.ts'
import { messageBody } from './message.ts'
import { startSink, type Sink } from './sink.ts'
import { bytesOf } from './sternpost-system.ts'
import { FROM, startSternpost, type Sternpost } from './sternpost.ts'

export interface ConsoleFigures {
  stored: number
  /** Until data is painted, from the click on; median of five. */
  paints: { what: string; milliseconds: number }[]
  /** As they are sent, with brotli. */
  firstScreenKilobytes: number
  allKilobytes: number
  /** 99th percentile of an accepting POST, alone and while five people click; median of the turns. */
  quietMilliseconds: number
  clickedMilliseconds: number
  clickedToQuiet: number
  /** Messages per second from POST to sink. */
  alonePerSecond: number
  watchedPerSecond: number
  watchedToAlone: number
}

const COMMAND = fileURLToPath(new URL('../sternpost', import.meta.url))
const run = promisify(execFile)
const TIMES = 5
const TURNS = 7
const PEOPLE = 5
const CLICK_EVERY_MILLISECONDS = 1_000
const PAGES = 20
/** How often Home asks again, by what it asks (src/console/screens/home.ts); for all else 10 s. */
const ASKED_EVERY_SECONDS = new Map([
  ['/v1/admin/checks', 30],
  ['/v1/ips', 30],
  ['/v1/stats', 60],
])
const USUALLY_EVERY_SECONDS = 10
/** Behind so many the list of messages stops listening. */
const MOST_NEWS = 100
const UNKNOWN_MESSAGE = 'msg_01k00000000000000000000000'
const POSTS = 3_000
const POST_CLIENTS = 4
const WATCHED_MESSAGES = 8_000
const WATCHED_CLIENTS = 50
const WARM_UP = 5_000
const DEADLINE = 300_000
const DAY = 86_400_000
const KILOBYTE = 1_024
const tell = createProgress('console')

export async function measureConsole(stored: number): Promise<ConsoleFigures> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-bench-console-'))
  const ends: (() => Promise<unknown>)[] = []
  try {
    await fillDatabase(folder, stored, tell)
    const deliveryPort = await freePort()
    const sink = await startSink('127.0.0.1', deliveryPort)
    ends.push(() => sink.stop())
    const sternpost = await startSternpost({ deliveryPort, dataFolder: join(folder, 'data') })
    ends.push(() => sternpost.stop())
    const browser = await startBrowser({ teardown: (end) => ends.push(async () => end()) })
    const watched = await openPage(browser)
    const link = await loginLink(sternpost)
    await logIn(watched, link)
    tell('screens in the browser')
    const { paints, asked } = await paintScreens(watched, link, stored)
    const sizes = await measureSizes(watched, link)
    const cookies = await watched.page.context().cookies()
    const cookie = cookies.map(({ name, value }) => `${name}=${value}`).join('; ')
    await browser.close()
    const figures = await measureOthers({ sternpost, sink, cookie, asked })
    return { stored, paints, ...sizes, ...figures }
  } finally {
    for (const end of ends.reverse()) await end()
    rmSync(folder, { recursive: true, force: true })
  }
}

async function loginLink({ server }: Sternpost): Promise<string> {
  const { stdout } = await run('sh', [COMMAND, 'console', 'open', '--config', server.configurationFolder, '--json'])
  const { pathname } = new URL((JSON.parse(stdout) as { url: string }).url)
  return `${server.baseUrl}${pathname}`
}

/** What each click shows, and the paths below `/v1` that the browser asked for. */
type Show = (time: number) => Promise<void>

async function paintScreens(watched: WatchedPage, link: string, stored: number) {
  const { page } = watched
  const asked: string[][] = []
  const paints: ConsoleFigures['paints'] = []
  let paths: string[] = []
  page.on('request', (each) => {
    const { pathname, search } = new URL(each.url())
    if (pathname.startsWith('/v1/') && pathname !== '/v1/webhooks/stream') paths.push(`${pathname}${search}`)
  })
  const some = (time: number): number => Math.floor((stored * (time + 1)) / (TIMES + 2))
  const day = (time: number): string => new Date(Date.now() - (time + 2) * DAY).toISOString().slice(0, 10)
  const measure = async (what: string, prepare: (time: number) => Promise<unknown>, show: Show): Promise<void> => {
    const times: number[] = []
    for (let time = 0; time < TIMES; time += 1) {
      await prepare(time)
      paths = []
      const startedAt = performance.now()
      await show(time)
      times.push(performance.now() - startedAt)
      asked.push(paths)
    }
    paints.push({ what, milliseconds: Math.round(median(times)) })
  }
  const find = (what: string, query: (time: number) => string, row: (time: number) => string): Promise<void> =>
    measure(
      what,
      () => goTo(watched, link, 'messages?q=nobody@nowhere.test'),
      async (time) => {
        await page.fill('#query', query(time))
        await page.keyboard.press('Enter')
        await page.waitForSelector(`main ${row(time)}`)
      },
    )
  await measure(
    'home, loaded anew',
    () => page.goto('about:blank'),
    async () => {
      await page.goto(new URL('/console/home', link).href, { waitUntil: 'commit' })
      await page.waitForSelector('.figures')
    },
  )
  await find(
    'messages by address',
    (time) => recipientOf(some(time)),
    (time) => `td:has-text("${recipientOf(some(time))}")`,
  )
  await find(
    'messages by a common word',
    () => 'order',
    () => 'tbody tr:nth-child(50)',
  )
  await find(
    'messages by subject',
    (time) => subjectOf(some(time)),
    (time) => `td:has-text("${subjectOf(some(time))}")`,
  )
  await find(
    'messages by tag and day',
    (time) => `tag:${tagOf(time).replace(':', '=')} after:${day(time + 1)} before:${day(time)}`,
    () => 'tbody tr',
  )
  for (const [screen, seen] of [
    ['home', '.figures'],
    ['queue', 'main h2, main table, main .empty'],
    ['providers', 'main h2, main table, main .empty'],
  ] as const) {
    await measure(
      screen,
      () => goTo(watched, link, 'api'),
      async () => {
        await page.click(`nav a[href$="/${screen}"]`)
        await page.waitForSelector(seen)
      },
    )
  }
  await measure(
    'a message',
    (time) => goTo(watched, link, `messages?q=${recipientOf(some(time) + 7)}`),
    async () => {
      await page.click('tbody a')
      await page.waitForSelector('main section li')
    },
  )
  return { paints, asked }
}

async function measureSizes({ page }: WatchedPage, link: string) {
  const bytes = new Map<string, number>()
  const session = await page.context().newCDPSession(page)
  await session.send('Network.enable')
  await session.send('Network.setCacheDisabled', { cacheDisabled: true })
  session.on('Network.responseReceived', ({ response: { url, headers } }) => {
    const { pathname } = new URL(url)
    if (pathname.startsWith('/console/')) bytes.set(pathname, Number(headers['Content-Length']))
  })
  const sum = (): number => Math.round([...bytes.values()].reduce((total, each) => total + each, 0) / KILOBYTE)
  await goTo({ page, faults: [] }, link, 'home')
  const firstScreenKilobytes = sum()
  for (const screen of ['messages', 'queue', 'ips', 'providers', 'domains', 'webhooks', 'suppressions', 'people']) {
    await goTo({ page, faults: [] }, link, screen)
  }
  for (const screen of ['system', 'api']) await goTo({ page, faults: [] }, link, screen)
  return { firstScreenKilobytes, allKilobytes: sum() }
}

interface Played {
  sternpost: Sternpost
  sink: Sink
  cookie: string
  /** Paths of each click. */
  asked: string[][]
}

async function measureOthers(played: Played) {
  const { sternpost, sink } = played
  let sent = 0
  const send = async (messages: number, clients: number) => {
    const startedAt = performance.now()
    const { latencies } = await runLoad({
      baseUrl: sternpost.server.baseUrl,
      apiKey: sternpost.key,
      clients,
      messages,
      body: messageBody({ from: FROM, recipientDomain: 'dest.test', htmlBytes: bytesOf(10) }),
    })
    sent += messages
    await sink.received(sent, DEADLINE)
    return { perSecond: (messages * 1_000) / (performance.now() - startedAt), p99: percentile(latencies, 0.99) }
  }
  await send(WARM_UP, WATCHED_CLIENTS)
  const turns: Record<'quiet' | 'clicked' | 'alone' | 'watched', number[]> = {
    quiet: [],
    clicked: [],
    alone: [],
    watched: [],
  }
  for (let turn = 0; turn < TURNS; turn += 1) {
    tell(`turn ${turn + 1} of ${TURNS}`)
    turns.quiet.push((await send(POSTS, POST_CLIENTS)).p99)
    turns.clicked.push((await during(clickers(played), () => send(POSTS, POST_CLIENTS))).p99)
    const order = ['alone', 'watched'] as const
    // The machine slows down and speeds up: neither of them always comes first.
    for (const name of turn % 2 === 0 ? order : order.toReversed()) {
      const players = name === 'watched' ? openPages(played) : []
      turns[name].push((await during(players, () => send(WATCHED_MESSAGES, WATCHED_CLIENTS))).perSecond)
    }
  }
  const middle = (name: keyof typeof turns): number => threeDigits(median(turns[name]))
  const ratio = (over: keyof typeof turns, under: keyof typeof turns): number =>
    threeDigits(median(turns[over].map((value, turn) => value / (turns[under][turn] ?? Number.NaN))))
  return {
    quietMilliseconds: middle('quiet'),
    clickedMilliseconds: middle('clicked'),
    clickedToQuiet: ratio('clicked', 'quiet'),
    alonePerSecond: middle('alone'),
    watchedPerSecond: middle('watched'),
    watchedToAlone: ratio('watched', 'alone'),
  }
}

type Player = (ended: AbortSignal) => Promise<void>

async function during<Result>(players: readonly Player[], work: () => Promise<Result>): Promise<Result> {
  const ending = new AbortController()
  const playing = players.map((play) =>
    play(ending.signal).catch((thrown: unknown) => {
      if (!ending.signal.aborted) throw thrown
    }),
  )
  const result = await work()
  ending.abort()
  await Promise.all(playing)
  return result
}

function clickers(played: Played): Player[] {
  return Array.from({ length: PEOPLE }, (_, person) => async (signal: AbortSignal) => {
    const agent = new Agent({ connections: 6 })
    for (let click = person * 3; !signal.aborted; click += 1) {
      const paths = played.asked[click % played.asked.length] ?? []
      await Promise.all(paths.map((path) => ask(played, agent, path, signal)))
      await sleep(CLICK_EVERY_MILLISECONDS, undefined, { signal })
    }
  })
}

/** In turn: Home, one message, the list of messages, each with what it listens to. */
function openPages(played: Played): Player[] {
  const home = played.asked[0] ?? []
  return Array.from({ length: PAGES }, (_, number) => async (signal: AbortSignal) => {
    const agent = new Agent({ connections: 6 })
    // They were opened at different times.
    const isOpenFor = (number * 60_000) / PAGES
    if (number % 3 === 1) return ask(played, agent, `/v1/webhooks/stream?message_id=${UNKNOWN_MESSAGE}`, signal)
    if (number % 3 === 2) return ask(played, agent, '/v1/webhooks/stream', signal, MOST_NEWS)
    await Promise.all(
      home.map(async (path) => {
        const [pathname = ''] = path.split('?')
        const every = 1_000 * (ASKED_EVERY_SECONDS.get(pathname) ?? USUALLY_EVERY_SECONDS)
        await sleep(every - (isOpenFor % every), undefined, { signal })
        for (;;) {
          await ask(played, agent, path, signal)
          await sleep(every, undefined, { signal })
        }
      }),
    )
  })
}

/** Reads the answer, of a stream so many events at most. */
async function ask(
  { sternpost, cookie }: Played,
  dispatcher: Agent,
  path: string,
  signal: AbortSignal,
  mostEvents = Infinity,
): Promise<void> {
  const headers = { cookie, 'sec-fetch-site': 'same-origin' }
  const { statusCode, body } = await request(`${sternpost.server.baseUrl}${path}`, { dispatcher, headers, signal })
  if (statusCode !== 200) throw new Error(`GET ${path}: ${statusCode} ${await body.text()}`)
  let events = 0
  for await (const piece of body) {
    events += String(piece).split('\ndata: ').length - 1
    if (events >= mostEvents) return
  }
}
