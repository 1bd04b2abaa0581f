/**
 * The links of contents: loaded once however many ask at a time, and never an answer that is not of the content.
 */
import t from 'tap'
import { instrumentHtml } from '../../src/content/html/instrument-html.ts'
import { createLinkCache, type FoundLinks, type LinkCache } from '../../src/content/html/link-cache.ts'

/** Half of what the cache holds. */
const LARGE = Array.from(
  { length: 1_000 },
  (_, index) => `<a href="https://x.test/${'a'.repeat(4_000)}${index}">x</a>`,
).join('')

function startCache() {
  const loads: number[] = []
  const { linksOf } = createLinkCache()
  const ask = async (contentId: number, html: string | null | Error): Promise<number | undefined> => {
    const load = async (): Promise<FoundLinks | null> => {
      loads.push(contentId)
      if (html instanceof Error) throw html
      return html === null ? null : instrumentHtml(html, false)
    }
    const found: Awaited<ReturnType<LinkCache['linksOf']>> = await linksOf(contentId, load)
    return found?.links.length
  }
  return { ask, loads }
}

t.test('many clicks at a time load a content once, and later ones not at all', async (t) => {
  const { ask, loads } = startCache()
  const asked = Array.from({ length: 50 }, () => ask(1, '<a href="https://x.test/">x</a>'))
  t.ok((await Promise.all(asked)).every((count) => count === 1))
  t.equal(await ask(1, null), 1)
  t.same(loads, [1])
})

t.test('what could not be loaded is asked for again', async (t) => {
  const { ask, loads } = startCache()
  t.equal(await ask(1, null), undefined)
  await t.rejects(ask(1, new Error('no answer')), { message: 'no answer' })
  t.equal(await ask(1, ''), 0)
  t.same(loads, [1, 1, 1])
})

t.test('contents push each other out, and each asker has an answer', async (t) => {
  const { ask, loads } = startCache()
  const ids = Array.from({ length: 6 }, (_, index) => index)
  t.same(
    await Promise.all(ids.map((id) => ask(id, LARGE))),
    ids.map(() => 1_000),
  )
  t.equal(await ask(0, '<p>'), 0, 'the first one is loaded anew')
  t.same(loads, [...ids, 0])
})
