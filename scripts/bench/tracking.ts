/**
 * What tracking costs: reading a newsletter of 50 KB once, and filling it in for each further recipient. CPU time of
 * this process alone; needs nothing but Node. Run with: sh scripts/node scripts/bench/tracking.ts
 */
import { createSecretKey, randomBytes } from 'node:crypto'
import { fillHtml, instrumentHtml } from '../../src/content/html/instrument-html.ts'
import { messageUrls } from '../../src/content/message-fields.ts'

const HTML_BYTES = 50 * 1_024
const LINKS = 30
const RECIPIENTS = 2_000
const MESSAGE_ID = 'msg_01kapg6t3vq8x2m5r7w9y4c6de'
const BASE_URL = 'https://track.bench.test'

const html = newsletter()
const template = instrumentHtml(html, true)
const secret = createSecretKey(randomBytes(32))
const urls = messageUrls({
  messageId: MESSAGE_ID,
  baseUrl: BASE_URL,
  keys: { open: secret, click: secret, unsubscribe: secret },
})
const known = Array.from({ length: LINKS }, (_, index) => urls.link(index))

const fillWith = (linkUrl: (linkNumber: number) => string): number =>
  fillHtml(template, {
    variables: { name: 'Ada' },
    linkUrl,
    pixelUrl: known[0] ?? '',
    unsubscribeUrl: null,
    rewritesLinks: true,
  }).length

print(
  'read once',
  cpuMicroseconds(() => instrumentHtml(html, true).links.length, 50),
)
print(
  'joined for each recipient',
  cpuMicroseconds(() => fillWith((index) => known[index] ?? ''), RECIPIENTS),
)
print(
  `with ${LINKS} link tokens made`,
  cpuMicroseconds(() => fillWith(urls.link), RECIPIENTS),
)

/** Paragraphs, some with a link, and a placeholder. */
function newsletter(): string {
  const start = '<!doctype html><html><body><p>Hello {{name}}</p>\n'
  const filler = Math.floor((HTML_BYTES - start.length) / LINKS)
  const paragraph = (index: number): string => {
    const link = `<a style="color:#06c" href="https://shop.bench.test/articles/${index}?a=1&amp;b=2">More</a></p>\n`
    return `<p style="margin:0 0 12px">${'All that is new. '.repeat(filler)}`.slice(0, filler - link.length) + link
  }
  return `${start}${Array.from({ length: LINKS }, (_, index) => paragraph(index)).join('')}</body></html>\n`
}

/** For one call, after as many that do not count. */
function cpuMicroseconds(work: () => number, calls: number): number {
  let size = 0
  const run = (): void => {
    for (let call = 0; call < calls; call++) size += work()
  }
  run()
  const before = process.cpuUsage()
  run()
  const { user, system } = process.cpuUsage(before)
  if (size === 0) throw new Error('nothing was made')
  return (user + system) / calls
}

function print(what: string, microseconds: number): void {
  process.stdout.write(`${what.padEnd(28)} ${microseconds.toFixed(1).padStart(8)} microseconds CPU\n`)
}
