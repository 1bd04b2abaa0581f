/**
 * Headless Chromium over its debugging protocol: how it shows html, and what its parser makes of it.
 *
 * Nothing leaves the machine: every host name but a literal loopback address is unknown to it.
 */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { missingPrograms } from './programs.ts'

export const skipWithoutChromium = missingPrograms({ chromium: ['chromium'] })

export interface Chromium {
  /** A PNG of the page at `url`, once all of it was loaded. */
  screenshot(url: string): Promise<Buffer>
  /** The value of an expression in a page of its own. */
  evaluate(expression: string): Promise<unknown>
  close(): Promise<void>
}

/** Whatever the protocol says; the callers know the shapes. */
interface Message {
  id?: number
  method?: string
  params?: Record<string, unknown>
  sessionId?: string
  result?: Record<string, unknown>
  error?: { message: string }
}

/** Pixels that a screenshot shows. */
const WINDOW_SIZE = '800,1600'
const START_MILLISECONDS = 180_000

export async function startChromium(): Promise<Chromium> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-chromium-'))
  const browser = spawn(
    'chromium',
    [
      '--headless',
      '--no-sandbox',
      '--disable-gpu',
      '--hide-scrollbars',
      '--no-first-run',
      '--remote-debugging-port=0',
      `--window-size=${WINDOW_SIZE}`,
      `--user-data-dir=${folder}`,
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
      'about:blank',
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  )
  const socket = await connect(await addressIn(browser.stderr))
  const pending = new Map<number, (message: Message) => void>()
  const listeners = new Set<(message: Message) => void>()
  let calls = 0
  socket.addEventListener('message', ({ data }) => {
    const message = JSON.parse(String(data)) as Message
    if (message.id !== undefined) pending.get(message.id)?.(message)
    else for (const listener of listeners) listener(message)
  })

  const call = (method: string, params: object, sessionId?: string): Promise<Record<string, unknown>> =>
    new Promise((resolve, reject) => {
      const id = ++calls
      pending.set(id, ({ result, error }) => {
        pending.delete(id)
        if (error === undefined) resolve(result ?? {})
        else reject(new Error(`${method}: ${error.message}`))
      })
      socket.send(JSON.stringify({ id, method, params, ...(sessionId === undefined ? {} : { sessionId }) }))
    })
  const loaded = (session: string): Promise<void> =>
    new Promise((resolve) => {
      const listener = ({ method, sessionId }: Message): void => {
        if (method !== 'Page.loadEventFired' || sessionId !== session) return
        listeners.delete(listener)
        resolve()
      }
      listeners.add(listener)
    })
  const withPage = async <Result>(work: (session: string) => Promise<Result>): Promise<Result> => {
    const { targetId } = await call('Target.createTarget', { url: 'about:blank' })
    const { sessionId } = await call('Target.attachToTarget', { targetId, flatten: true })
    try {
      return await work(String(sessionId))
    } finally {
      await call('Target.closeTarget', { targetId })
    }
  }

  return {
    screenshot: (url) =>
      withPage(async (session) => {
        await call('Page.enable', {}, session)
        const load = loaded(session)
        await call('Page.navigate', { url }, session)
        await load
        const { data } = await call('Page.captureScreenshot', { format: 'png' }, session)
        return Buffer.from(String(data), 'base64')
      }),
    evaluate: (expression) =>
      withPage(async (session) => {
        const { result } = await call('Runtime.evaluate', { expression, returnByValue: true }, session)
        return (result as { value: unknown }).value
      }),
    async close() {
      const ended = new Promise((resolve) => browser.once('exit', resolve))
      await call('Browser.close', {})
      await ended
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}

function addressIn(output: NodeJS.ReadableStream): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = ''
    const timer = setTimeout(() => reject(new Error(`chromium does not start: ${text}`)), START_MILLISECONDS)
    output.on('data', (piece: Buffer) => {
      text += piece.toString()
      const address = /DevTools listening on (ws:\S+)/.exec(text)?.[1]
      if (address === undefined) return
      clearTimeout(timer)
      resolve(address)
    })
  })
}

function connect(address: string): Promise<WebSocket> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(address)
    socket.addEventListener('open', () => resolve(socket))
    socket.addEventListener('error', () => reject(new Error(`chromium does not answer at ${address}`)))
  })
}
