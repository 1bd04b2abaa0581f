/**
 * Tracked mail in a browser: newsletters look the same with tracked links and the pixel as without, and Chromium's
 * parser makes the same tree of them but for those.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { fillHtml, instrumentHtml } from '../../src/content/html/instrument-html.ts'
import { skipWithoutChromium, startChromium } from '../support/chromium.ts'

const CORPUS = new URL('../../../shared/corpora/html/', import.meta.url)
const files = existsSync(CORPUS)
  ? readdirSync(CORPUS, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.html'))
      .sort()
  : []
const skip = files.length === 0 ? 'the corpora are not there' : skipWithoutChromium
const SHOWN = process.env['TEST_SCALE'] === 'full' ? 20 : 5
/** A transparent picture of one pixel. */
const PIXEL = Buffer.from('R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAICRAEAOw==', 'base64')

t.setTimeout(600_000)

/** The newsletters as they are and as they are sent, and the pixel. */
async function startPages(t: Test): Promise<string> {
  const server = createServer(({ url = '' }, response) => {
    const { pathname, searchParams } = new URL(url, 'http://127.0.0.1')
    if (pathname.startsWith('/o/')) return void response.writeHead(200, { 'Content-Type': 'image/gif' }).end(PIXEL)
    const file = searchParams.get('file')
    if (file === null) return void response.writeHead(404).end()
    const html = readFileSync(new URL(file, CORPUS), 'utf8')
    const page = pathname === '/after' ? tracked(html, baseUrl()) : html
    response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' }).end(page)
  })
  const baseUrl = (): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  return baseUrl()
}

function tracked(html: string, baseUrl: string): string {
  return fillHtml(instrumentHtml(html, false), {
    variables: {},
    linkUrl: (linkNumber) => `${baseUrl}/c/${linkNumber}`,
    pixelUrl: `${baseUrl}/o/token`,
    unsubscribeUrl: null,
    rewritesLinks: true,
  })
}

interface Compared {
  differs: boolean
  links: number
  pixels: number
}

/** A function of the browser: what its parser makes of pairs of texts, and what differs beside links and the pixel. */
const COMPARE = `(pairs, baseUrl) => pairs.map(([before, after]) => {
  const [original, changed] = [before, after].map((html) => new DOMParser().parseFromString(html, 'text/html'))
  const pixels = [...changed.querySelectorAll('img[src^="' + baseUrl + '/o/"]')]
  const links = [...changed.querySelectorAll('a, area')].filter((link) => link.href.startsWith(baseUrl + '/c/'))
  for (const pixel of pixels) pixel.remove()
  for (const document of [original, changed]) {
    document.normalize()
    for (const link of document.querySelectorAll('a[href], area[href]')) {
      if (/^\\s*https?:\\/\\//i.test(link.getAttribute('href'))) link.setAttribute('href', 'tracked')
    }
  }
  return { differs: !original.isEqualNode(changed), links: links.length, pixels: pixels.length }
})`

t.test('Chromium shows newsletters the same, tracked or not', { skip }, async (t) => {
  const baseUrl = await startPages(t)
  const chromium = await startChromium()
  t.teardown(() => chromium.close())
  const step = Math.floor(files.length / SHOWN)
  for (const file of Array.from({ length: SHOWN }, (_, index) => files[index * step] ?? '')) {
    const shown = (page: string): Promise<Buffer> =>
      chromium.screenshot(`${baseUrl}/${page}?file=${encodeURIComponent(file)}`)
    const [before, after] = [await shown('before'), await shown('after')]
    t.ok(before.length > 1_000 && before.equals(after), file)
  }
})

t.test('Chromium parses newsletters into the same tree, but for links and the pixel', { skip }, async (t) => {
  const chromium = await startChromium()
  t.teardown(() => chromium.close())
  const baseUrl = 'https://t.acme.test'
  const texts = files.map((file) => readFileSync(new URL(file, CORPUS), 'utf8'))
  const pairs = texts.map((html) => [html, tracked(html, baseUrl)])
  const compared = (await chromium.evaluate(
    `(${COMPARE})(${JSON.stringify(pairs)}, ${JSON.stringify(baseUrl)})`,
  )) as Compared[]
  t.equal(compared.length, files.length)
  t.same(
    files.filter((_, index) => compared[index]?.differs !== false || compared[index]?.pixels !== 1),
    [],
  )
  const links = compared.reduce((sum, each) => sum + each.links, 0)
  t.comment(`${files.length} files, ${links} tracked links`)
  t.ok(links > 100)
})
