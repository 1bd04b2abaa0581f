/**
 * Every act of the console by keyboard alone: what somebody does who reaches everything with Tab, Enter, Space and
 * letters. The ten seconds in which an act can be undone pass on the page's own clock.
 */
import t from 'tap'
import type { Page } from 'playwright-core'
import { goTo, logIn, openPage, skipWithoutChromium, startBrowser } from '../support/browser.ts'
import { startSandbox, type SandboxProcess } from '../support/sandbox-process.ts'
import { until } from '../support/until.ts'
import { webhookReceiver } from '../support/webhook-receiver.ts'

t.setTimeout(300_000)

/** Of what has the focus: its own text, that of its label, or its name for screen readers. */
const FOCUSED = `(() => {
  const element = document.activeElement
  const labels = [...(element.labels ?? [])].map((label) => label.textContent)
  return [element.getAttribute('aria-label'), element.textContent, ...labels].filter(Boolean).join(' ').trim()
})()`
const MOST_TABS = 150
const UNDO_SECONDS = 11

/** Goes on with Tab until what is meant has the focus. */
async function reach(page: Page, text: string): Promise<void> {
  for (let tabs = 0; tabs < MOST_TABS; tabs += 1) {
    await page.keyboard.press('Tab')
    const focused = (await page.evaluate(FOCUSED)) as string
    if (focused === text || focused.startsWith(`${text} `)) return
  }
  throw new Error(`"${text}" is not reached by ${MOST_TABS} Tabs`)
}

async function press(page: Page, text: string): Promise<void> {
  await reach(page, text)
  await page.keyboard.press('Enter')
}

async function fill(page: Page, label: string, text: string): Promise<void> {
  await reach(page, label)
  await page.keyboard.press('Control+a')
  await page.keyboard.type(text)
}

type Step = (page: Page) => Promise<void>
const pressing =
  (text: string): Step =>
  (page) =>
    press(page, text)
const filling =
  (label: string, text: string): Step =>
  (page) =>
    fill(page, label, text)
const seen =
  (text: string): Step =>
  async (page) => {
    await page.waitForSelector(`text=${text}`)
  }
const enter: Step = (page) => page.keyboard.press('Enter')
const undoTimePasses: Step = (page) => page.clock.fastForward(UNDO_SECONDS * 1_000)

/** Where, how, and what is said or shown then. */
type Act = [screen: string, steps: Step[], shown: string]

/** A message that is deferred again and again, an endpoint, and what can be done with both and without them. */
function actsOf(message: string, endpoint: string, hookUrl: string): Act[] {
  const later = (screen: string, button: string, shown: string): Act => [
    screen,
    [pressing(button), undoTimePasses],
    shown,
  ]
  const queue = (button: string, shown: string): Act => [
    'queue',
    [pressing(button), seen('Leave them'), enter, undoTimePasses],
    shown,
  ]
  return [
    ['providers', [pressing('Resume'), undoTimePasses], 'paths are open again.'],
    ['ips/127.0.0.12', [pressing('Pause')], 'The warmup is paused.'],
    ['ips/127.0.0.12', [pressing('Resume')], 'The warmup goes on.'],
    ['ips/127.0.0.12', [pressing('Complete'), undoTimePasses], 'The warmup is complete.'],
    later('ips/127.0.0.12', 'Suspend', '127.0.0.12 is suspended.'),
    ['ips/127.0.0.12', [pressing('End the suspension')], '127.0.0.12 sends again.'],
    ['home', [pressing('Check now')], 'All checks ran.'],
    [
      'home',
      [pressing('Send a test'), filling('From', 'you@sandbox.test'), filling('To', 'ada@example.com'), enter],
      'The test mail was accepted.',
    ],
    ['inbox', [pressing('1 hour ahead')], 'The clock was changed.'],
    [`messages/${message}`, [pressing('Retry')], 'It is tried again.'],
    queue('Hold', 'messages are held.'),
    queue('Release', 'messages are released.'),
    queue('Retry now', 'messages are tried now.'),
    later(`messages/${message}`, 'Cancel', 'It is canceled.'),
    later(`messages/${message}`, 'Suppress the address', 'is on the suppression list.'),
    queue('Drop', 'messages were dropped.'),
    ['domains', [filling('A domain of yours', 'keys.test'), enter], 'keys.test was added.'],
    ['domains/keys.test', [pressing('Check now')], 'The DNS was asked.'],
    ['domains/keys.test', [pressing('Link for')], 'Whoever has the link'],
    ['domains/keys.test', [pressing('Remove'), seen('will be removed'), undoTimePasses], 'keys.test was removed.'],
    ['domains/sandbox.test', [pressing('Rotate the DKIM key')], 'A new DKIM key is there'],
    ['webhooks', [filling('Address of your app', `${hookUrl}/more`), enter], 'The endpoint was added.'],
    [`webhooks/${endpoint}`, [pressing('Send a test')], 'It answered 200'],
    [`webhooks/${endpoint}`, [pressing('Replay what failed')], 'deliveries are posted again.'],
    [`webhooks/${endpoint}`, [pressing('Disable')], 'It is disabled.'],
    [`webhooks/${endpoint}`, [pressing('Enable')], 'It is enabled.'],
    later(`webhooks/${endpoint}`, 'Remove', 'The endpoint was removed.'),
    ['suppressions', [filling('Suppress', 'keys@example.com'), enter], 'keys@example.com is on the list.'],
    ['suppressions', [pressing('Export')], 'addresses were saved.'],
    ['suppressions', [pressing('Remove'), seen('will be removed'), undoTimePasses], 'was taken off the list.'],
    ['people', [pressing('Make a key'), filling('What it is for', 'by keys'), enter], 'The key, shown only now'],
    later('people', 'Revoke', 'is revoked.'),
    ['people', [filling('Name', 'grace'), enter], 'For grace, once'],
    [
      'people',
      [(page) => reach(page, 'Role of grace'), (page) => page.keyboard.press('ArrowDown')],
      'The role is operator now.',
    ],
    ['people', [(page) => reach(page, 'Role of grace'), pressing('Remove'), undoTimePasses], 'grace was removed.'],
    ['system', [pressing('What would a reload change?')], 'This is what a reload would change.'],
    ['system', [pressing('Write a backup')], 'A backup is being written'],
    ['api', [pressing('GET /email'), filling('Key, best a test key', 'sk_test_wrong'), enter], '401'],
    ['inbox', [filling('Answer the next mail to', 'x@example.com'), enter], 'The next mail to it gets this reply.'],
    ['inbox', [pressing('Empty it')], 'The inbox is empty.'],
    ['people', [pressing('End')], '/The session is ended|Or with an API key/'],
  ]
}

t.test('every act', { skip: skipWithoutChromium }, async (t) => {
  const sandbox = await startSandbox(t)
  const hooks = await webhookReceiver()
  t.teardown(() => hooks.close())
  const message = await deferredMessage(sandbox)
  const made = await sandbox.ask('POST', '/v1/webhooks', { url: hooks.url })
  const endpoint = (made['data'] as { id: string }).id
  const watched = await openPage(await startBrowser(t))
  const { page } = watched
  await page.clock.install()
  const link = sandbox.banner.console
  await logIn(watched, link)
  for (const [screen, steps, shown] of actsOf(message, endpoint, hooks.url)) {
    await until('nothing is being sent', async () => (await sandbox.list('/v1/email?state=sending')).length === 0)
    await goTo(watched, link, screen)
    try {
      for (const step of steps) await step(page)
      await page.waitForSelector(`text=${shown}`, { timeout: 10_000 })
      t.pass(`${screen}: ${shown}`)
    } catch (thrown) {
      const said = await page.locator('.said').textContent()
      t.fail(`${screen}: ${shown}: ${String(thrown).split('\n')[0]}; said: ${said}`)
    }
  }
  // The key that was tried is wrong, and the session ends.
  t.same(
    watched.faults.filter((fault) => !fault.includes('401')),
    [],
  )
})

/** What Yahoo says to a sender that it does not know: the path is held back. */
const SLOWED = {
  to: 'ada@yahoo.com',
  stage: 'rcpt',
  reply: '421 4.7.0 [TSS04] Messages temporarily deferred',
  times: 9,
}

async function deferredMessage(sandbox: SandboxProcess): Promise<string> {
  const rule = { to: 'later@example.com', stage: 'rcpt', reply: '450 4.2.0 Later', times: 99 }
  await sandbox.ask('PUT', '/dev/replies', [rule, { ...rule, to: 'others@example.com' }, SLOWED])
  const from = 'you@sandbox.test'
  const id = await sandbox.send({ to: rule.to, from })
  await sandbox.send({ to: 'others@example.com', from })
  // Twice within an hour.
  for (let count = 0; count < 2; count += 1) await sandbox.send({ to: SLOWED.to, from })
  const deferred = (): Promise<unknown[]> => sandbox.list('/v1/email?state=deferred')
  await until('both are deferred', async () => (await deferred()).length >= 2)
  await until('a path is held back', async () => (await sandbox.list('/v1/admin/paths')).length > 0)
  return id
}
