/**
 * The console in a real browser, before a real sandbox: the first day, every screen with its acts, by keyboard alone, in
 * both themes and 360 pixels wide; and texts of strangers, which stay text.
 */
import t from 'tap'
import type { Browser } from 'playwright-core'
import {
  complaintsAbout,
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
    await sandbox.send({ to: 'delivered@simulator.sternpost.test', from: 'you@sandbox.test', subject: 'First' })
    await page.waitForSelector('tbody a:has-text("First")', { timeout: 5_000 })
    await page.click('tbody a:has-text("First")')
    await page.waitForSelector('dd:has-text("pass")')
    t.match(await page.textContent('pre'), 'Hi')
    await page.waitForSelector('pre:has-text("email.delivered")')
    await page.click('text=The message with its timeline')
    await page.waitForSelector('li:has-text("delivered")')
    await page.waitForSelector('pre:has-text("250")')
    t.same(watched.faults, [])
  },
)

for (const colorScheme of ['light', 'dark'] as const) {
  t.test(`every screen, ${colorScheme}: nothing that keeps somebody out`, { skip: skipWithoutChromium }, async (t) => {
    const watched = await loggedIn({ colorScheme, reducedMotion: 'reduce' })
    for (const screen of await allScreens()) {
      await goTo(watched, link(), screen)
      t.same(await complaintsAbout(watched), [], screen)
    }
    t.same(watched.faults, [])
  })
}

t.test('360 pixels: nothing scrolls sideways', { skip: skipWithoutChromium }, async (t) => {
  const watched = await loggedIn({ viewport: { width: 360, height: 740 } })
  for (const screen of await allScreens()) {
    await goTo(watched, link(), screen)
    t.equal(await watched.page.evaluate('document.documentElement.scrollWidth'), 360, screen)
  }
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
  await page.waitForSelector('#query')
  await press('/')
  await page.keyboard.type('nobody@example.com')
  await press('Enter')
  await page.waitForSelector('text=No message is like that.')
  t.match(page.url(), 'q=nobody')
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

const PAYLOADS = [
  '<script>globalThis.harmed=1</script>',
  '<img src=x onerror="globalThis.harmed=1">',
  '"><svg onload=globalThis.harmed=1>',
  "'><iframe srcdoc='<script>top.harmed=1</script>'>",
  'javascript:globalThis.harmed=1',
  '${globalThis.harmed=1}',
  '{{constructor.constructor("harmed=1")()}}',
  '</title><script>globalThis.harmed=1</script>',
  '<a href="javascript:globalThis.harmed=1">x</a>',
  '<style>@import"//evil.example/x.css"</style>',
]

t.test('what strangers wrote stays text', { skip: skipWithoutChromium }, async (t) => {
  for (const payload of PAYLOADS) {
    await sandbox.ask('PUT', '/dev/replies', [
      { to: 'evil@example.com', stage: 'rcpt', reply: `550 5.1.1 ${payload}`, times: 1 },
    ])
    const tag = payload.replaceAll(/[^\w<>"'=/.-]/g, '').slice(0, 60)
    await sandbox.ask('POST', '/v1/email/send', {
      to: 'evil@example.com',
      from: 'you@sandbox.test',
      subject: payload,
      html: `<p>Hi</p>${payload}`,
      tags: { tag },
      attachments: [{ name: payload.replaceAll('/', '_'), content: 'eA==' }],
    })
    await sandbox.ask('POST', '/v1/email/send', {
      to: 'ada@example.com',
      from: 'you@sandbox.test',
      subject: payload,
      html: `<p>Hi</p>${payload}`,
      text: payload,
      attachments: [{ name: payload.replaceAll('/', '_'), content: 'eA==' }],
    })
  }
  const watched = await loggedIn({ userAgent: PAYLOADS[0] })
  const { page } = watched
  await until('a mail bounced', async () => (await sandbox.list('/v1/email?state=bounced')).length > 0)
  const mails = await sandbox.list<{ id: string }>('/dev/inbox?limit=12')
  const messages = await sandbox.list<{ message_id: string }>('/v1/email?limit=20')
  const shown = [
    'inbox',
    'messages',
    'people',
    'home',
    ...mails.map(({ id }) => `inbox/${id}`),
    ...messages.map(({ message_id: id }) => `messages/${id}`),
  ]
  for (const screen of shown) {
    await goTo(watched, link(), screen)
    if (screen.startsWith('inbox/')) {
      for (const view of ['text', 'source', 'headers', 'links']) await page.click(`.choice button:has-text("${view}")`)
    }
    const isHarmed = await page.evaluate(`'harmed' in globalThis`)
    t.notOk(isHarmed, screen)
    t.equal(await page.locator('main script, main svg[onload], main img, main iframe[srcdoc]').count(), 0, screen)
  }
  t.same(watched.faults, [])
})
