/**
 * npm run console:screens -- DIR: a picture of each screen of the console, as `<screen>.png`, from a sandbox with a few
 * days of mail. Needs Chromium (`apt-get install chromium`); ends with 69 when there is none.
 */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { goTo, logIn, openPage, skipWithoutChromium, startBrowser } from '../test/support/browser.ts'
import { startSandbox, type SandboxProcess } from '../test/support/sandbox-process.ts'

const SCREENS = ['home', 'inbox', 'messages', 'queue', 'ips', 'providers', 'domains', 'webhooks', 'suppressions']
const MORE_SCREENS = ['people', 'system', 'api', 'ips/127.0.0.12', 'domains/sandbox.test']
const MAILS = 40
const UNAVAILABLE = 69
const MISUSE = 64
const PEOPLE = ['ada', 'grace', 'linus', 'margaret', 'edsger', 'barbara']
const SUBJECTS = ['Your order is on its way', 'Reset your password', 'Welcome aboard', 'Your invoice for November']
const RECEIVERS = ['gmail.com', 'outlook.com', 'yahoo.com', 'example.com']
const HTML =
  '<h1>Thank you!</h1><p>Your order will be with you <a href="https://shop.example/o/1042">on Friday</a>.</p>'

const [, , folder] = process.argv
if (folder === undefined) stop('npm run console:screens -- DIR', MISUSE)
if (skipWithoutChromium !== false) stop(`${skipWithoutChromium}. Fix: apt-get install chromium`, UNAVAILABLE)

const ends: (() => unknown)[] = []
try {
  await takePictures(folder)
} finally {
  for (const end of ends.reverse()) await end()
}

async function takePictures(target: string): Promise<void> {
  mkdirSync(target, { recursive: true })
  const life = { teardown: (end: () => unknown) => ends.push(end) }
  const sandbox = await startSandbox(life)
  await sendMail(sandbox)
  const { console: link } = sandbox.banner
  const watched = await openPage(await startBrowser(life), { viewport: { width: 1200, height: 760 } })
  await logIn(watched, link)
  const [mail] = await sandbox.list<{ id: string }>('/dev/inbox')
  const [message] = await sandbox.list<{ message_id: string }>('/v1/email?state=bounced')
  for (const screen of [...SCREENS, ...MORE_SCREENS, `inbox/${mail?.id}`, `messages/${message?.message_id}`]) {
    await goTo(watched, link, screen)
    const name = screen.replace(/(inbox|messages)\/.*/, '$1-one').replaceAll('/', '-')
    await watched.page.screenshot({ path: join(target, `${name}.png`) })
    process.stdout.write(`${name}.png\n`)
  }
}

/** Some arrive, some wait, some are refused; an hour of the sandbox's clock lies between the parts. */
async function sendMail(sandbox: SandboxProcess): Promise<void> {
  await sandbox.ask('PUT', '/dev/replies', [
    { to: 'ada@yahoo.com', stage: 'rcpt', reply: '421 4.7.0 [TSS04] Messages temporarily deferred', times: 9 },
    {
      to: 'grace@outlook.com',
      stage: 'rcpt',
      reply: '550 5.5.0 Requested action not taken: mailbox unavailable',
      times: 9,
    },
  ])
  for (let number = 0; number < MAILS; number += 1) {
    const to = `${PEOPLE[number % PEOPLE.length]}@${RECEIVERS[number % RECEIVERS.length]}`
    const subject = SUBJECTS[number % SUBJECTS.length] ?? ''
    await sandbox.send({ to, from: 'shop@sandbox.test', subject, html: HTML })
    if (number % 10 === 9) await sandbox.ask('POST', '/dev/clock', { advance: '1h' })
  }
  await sandbox.ask('POST', '/v1/admin/checks')
  await sleep(3_000)
}

function stop(sentence: string, exitCode: number): never {
  process.stderr.write(`console:screens: ${sentence}\n`)
  process.exit(exitCode)
}
