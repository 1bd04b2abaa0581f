/**
 * Passkeys in a real browser with an authenticator of its own: made once logged in, then the way to log in; and what
 * somebody tries who has overheard one, changed one, or lost it.
 */
import t from 'tap'
import type { CDPSession, Page, Request } from 'playwright-core'
import { request } from 'undici'
import { logIn, openPage, skipWithoutChromium, startBrowser } from '../support/browser.ts'
import { startSandbox, type SandboxProcess } from '../support/sandbox-process.ts'

t.setTimeout(120_000)

const AUTHENTICATOR = {
  protocol: 'ctap2',
  transport: 'internal',
  hasResidentKey: true,
  hasUserVerification: true,
  isUserVerified: true,
  automaticPresenceSimulation: true,
} as const

/** By the name of the loopback, to which a passkey can belong. */
const named = (url: string): string => url.replace('127.0.0.1', 'localhost')

async function addAuthenticator(page: Page): Promise<CDPSession> {
  const session = await page.context().newCDPSession(page)
  await session.send('WebAuthn.enable')
  await session.send('WebAuthn.addVirtualAuthenticator', { options: AUTHENTICATOR })
  return session
}

async function linkFor(sandbox: SandboxProcess, name: string): Promise<string> {
  const made = await sandbox.ask('POST', '/v1/admin/people', { name, role: 'operator' })
  return named((made['data'] as { url: string }).url)
}

t.test(
  'a passkey is made, logs in, and logs in no more once it is removed',
  { skip: skipWithoutChromium },
  async (t) => {
    const sandbox = await startSandbox(t)
    const watched = await openPage(await startBrowser(t))
    const { page } = watched
    await addAuthenticator(page)
    await logIn(watched, await linkFor(sandbox, 'grace'))
    const origin = new URL(page.url()).origin

    await page.click('button:has-text("Passkeys")')
    await page.click('button:has-text("Add a passkey")')
    await page.waitForSelector('text=From now on this passkey logs you in.')
    await page.click('dialog button:has-text("Close")')
    await page.click('button:has-text("Log out")')
    await page.waitForSelector('h1')

    const sent: Request[] = []
    page.on('request', (each) => each.url().endsWith('/console/login/passkey') && sent.push(each))
    await page.click('button:has-text("Log in with a passkey")')
    await page.waitForSelector('nav')
    t.match(await page.textContent('nav'), 'grace')
    const good = JSON.parse(sent[0]?.postData() ?? '{}') as { id: string; response: Record<string, string> }

    const post = async (path: string, body: unknown, headers = {}): Promise<number> => {
      const answer = await request(`${origin.replace('localhost', '127.0.0.1')}${path}`, {
        method: 'POST',
        headers: { origin, host: new URL(origin).host, ...headers },
        body: typeof body === 'string' ? body : JSON.stringify(body),
      })
      await answer.body.dump()
      t.equal(answer.headers['set-cookie'], undefined, 'nobody is logged in')
      return answer.statusCode
    }
    const changed = (name: string, text: string): object => ({ ...good, response: { ...good.response, [name]: text } })
    const clientData = (changes: object): string => {
      const data = JSON.parse(Buffer.from(good.response['clientDataJSON'] ?? '', 'base64url').toString()) as object
      return Buffer.from(JSON.stringify({ ...data, ...changes })).toString('base64url')
    }
    const login = '/console/login/passkey'
    const attempts: [why: string, body: unknown, status: number][] = [
      ['what was overheard is sent again', good, 401],
      ['a challenge that nobody gave', changed('clientDataJSON', clientData({ challenge: 'AAAA' })), 401],
      ['another origin', changed('clientDataJSON', clientData({ origin: 'https://evil.example' })), 401],
      ['another signature', changed('signature', Buffer.alloc(70, 1).toString('base64url')), 401],
      ['a credential that is not known', { ...good, id: 'AAAA', rawId: 'AAAA' }, 401],
      ['nothing in it', {}, 401],
      ['a list', [], 401],
      ['an id that is none', { id: 7 }, 401],
      ['no JSON', 'x', 422],
      ['too much of it', JSON.stringify({ id: 'x'.repeat(20_000) }), 413],
    ]
    for (const [why, body, status] of attempts) t.equal(await post(login, body), status, why)
    const foreign = { origin: 'https://evil.example' }
    t.equal(await post(login, good, foreign), 403, 'from the page of somebody else')
    t.equal(await post(`${login}/options`, {}, foreign), 403)
    t.equal(await post('/console/passkeys/options', {}), 401, 'without a session nobody makes one')
    t.equal(await post('/console/passkeys', good), 401)

    await page.click('button:has-text("Passkeys")')
    await page.click('dialog li button:has-text("Remove")')
    await page.waitForSelector('text=The passkey logs in no more.')
    await page.click('dialog button:has-text("Close")')
    await page.click('button:has-text("Log out")')
    await page.click('button:has-text("Log in with a passkey")')
    await page.waitForSelector('text=This did not log in')
    t.same(
      watched.faults.filter((fault) => !fault.includes('401')),
      [],
    )
  },
)

t.test('by an IP address a passkey is not offered', { skip: skipWithoutChromium }, async (t) => {
  const sandbox = await startSandbox(t)
  const { page } = await openPage(await startBrowser(t))
  await page.goto(new URL('/console/login', sandbox.banner.console).href)
  t.equal(await page.locator('#passkey').isVisible(), false)
})
