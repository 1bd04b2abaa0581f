/**
 * The console in Debian's Chromium, as people use it: a page that is logged in, and what went wrong in it: errors, and
 * violations of the policy. Nothing leaves the machine: every host name but a literal loopback address is unknown to it.
 */
import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { chromium, type Browser, type BrowserContextOptions, type Page } from 'playwright-core'
import type { Teardown } from './sandbox-process.ts'

export { skipWithoutChromium } from './chromium.ts'

export interface WatchedPage {
  page: Page
  /** Errors that scripts threw or wrote, and what the policy of a page of ours refused. */
  faults: string[]
}

const AXE = readFileSync(fileURLToPath(import.meta.resolve('axe-core/axe.min.js')), 'utf8')
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']
/** The one rule that the colours decide. */
export const CONTRAST = ['color-contrast']

/** What the browser runs is text here: its globals are not ours. */
const NOTE_VIOLATIONS = `
  globalThis.policyViolations = []
  addEventListener('securitypolicyviolation', (event) =>
    policyViolations.push(event.violatedDirective + ' ' + event.blockedURI))`
const lookFor = (rules: readonly string[]): string => `(async () => {
  const { violations } = await axe.run(document, { runOnly: ${JSON.stringify(rules)}, iframes: false })
  const found = violations.map(({ id, nodes }) => [id, nodes[0].html, nodes[0].failureSummary].join(': '))
  return [...found, ...policyViolations]
})()`

/** Without a window that nobody sees: it takes less of the processor. */
const HEADLESS = '/usr/bin/chromium-headless-shell'

export async function startBrowser(t: Teardown): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath: existsSync(HEADLESS) ? HEADLESS : '/usr/bin/chromium',
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost',
    ],
  })
  t.teardown(() => browser.close())
  return browser
}

export async function openPage(browser: Browser, options: BrowserContextOptions = {}): Promise<WatchedPage> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options })
  const page = await context.newPage()
  const faults: string[] = []
  page.on('pageerror', (error) => faults.push(`error: ${error.message}`))
  page.on('console', (message) => {
    // What a preview of a mail asks for from elsewhere is refused on purpose.
    const isPreview = /\/dev\/inbox\/[^/]+\/html|^about:srcdoc/.test(message.location().url)
    if (message.type() === 'error' && !isPreview) faults.push(`${message.text()} ${message.location().url}`)
  })
  await page.addInitScript(NOTE_VIOLATIONS)
  return { page, faults }
}

/** With the one-time link. */
export async function logIn({ page }: WatchedPage, link: string): Promise<void> {
  await page.goto(link)
  await page.click('button')
  await page.waitForSelector('nav')
}

/** Leads to a screen within the application, and waits until nothing is loading any more. */
export async function goTo({ page }: WatchedPage, link: string, path: string): Promise<void> {
  await page.goto(new URL(`/console/${path}`, link).href)
  await page.waitForSelector('main h1')
  await page.waitForSelector('.waiting', { state: 'detached' })
}

/** What axe finds by rules or groups of them, as sentences, and what the policy of this page refused. */
export async function complaintsAbout({ page }: WatchedPage, rules: readonly string[] = RULES): Promise<string[]> {
  // By the debugging protocol: it does not run by the page's own policy.
  await page.evaluate(AXE)
  return (await page.evaluate(lookFor(rules))) as string[]
}
