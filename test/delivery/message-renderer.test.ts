/**
 * What a delivery thread keeps between messages changes none of them, and only what we encoded ourselves is sent
 * without a look for dots.
 */
import t from 'tap'
import type { StoredContent } from '../../src/mail/message.ts'
import type { ContentReader, SealedSigningKey } from '../../src/store/content-reader.ts'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { createMessageBody } from '../../src/delivery/session/message-body.ts'
import { createMessageRenderer } from '../../src/delivery/session/message-renderer.ts'
import type { DispatchedRow } from '../../src/delivery/protocol/try-result.ts'
import { createDkimKey } from '../../src/senders/records/dkim-keys.ts'
import { attachment, MESSAGE_ID, storedContent } from '../content/render-input.ts'

interface RendererParts {
  keys?: Record<string, SealedSigningKey[]>
  platformDomain?: string
  reader?: Partial<ContentReader>
}

const MASTER_KEY = Buffer.alloc(32, 7)

function rendererOf(contents: Record<number, StoredContent>, parts: RendererParts = {}) {
  const { renderer, row } = createRenderer(contents, parts)
  return (contentId: number, key = 1) => renderer.render(row(contentId, key), '8bit')
}

function createRenderer(contents: Record<number, StoredContent>, parts: RendererParts) {
  const { keys = {}, platformDomain } = parts
  const reader: ContentReader = {
    readAhead: async () => ({ facts: new Map(), contents: new Map() }),
    content: async (contentId) => contents[contentId],
    contentSize: async (contentId) => {
      const { html = '', raw, attachments = [] } = contents[contentId] ?? {}
      return attachments.reduce((sum, { bytes }) => sum + bytes.length, (html?.length ?? 0) + (raw?.length ?? 0))
    },
    renderFacts: async (key) => ({
      messageId: MESSAGE_ID,
      domain: 'acme.com',
      to: { name: null, address: 'ada@example.net' },
      variables: { name: `name ${key}` },
      acceptedAt: 1_795_262_400_000,
      sendAt: null,
      stream: 'transactional',
    }),
    signingKeys: async (domain) => keys[domain] ?? [],
    platformKey: async (domain) => keys[domain]?.[0],
    trackingHost: async () => null,
    close: async () => {},
    ...parts.reader,
  }
  const renderer = createMessageRenderer({
    reader,
    masterKey: MASTER_KEY,
    largeBytes: 10 * 2 ** 20,
    trackingUrl: null,
    trackingHost: 't.acme.com',
    referenceHeader: null,
    senderId: 'sternpost1',
    cfbl: false,
    platformDomain: platformDomain ?? null,
  })
  const row = (contentId: number, key: number): DispatchedRow => ({
    claim: 1,
    key,
    contentId,
    messageId: MESSAGE_ID,
    domain: 'acme.com',
    returnPath: 'bounces.acme.com',
    recipientDomain: `example${key}.net`,
    expiresAt: 0,
    isCaptured: true,
    isUrgent: false,
    wasInDoubt: false,
  })
  return { reader, renderer, row }
}

function wireOf(bytes: Buffer, provenFrom?: number): string {
  return createMessageBody(bytes, provenFrom).next().piece.toString()
}

t.test('lines of dots are doubled in what others wrote, and there are none in what we encoded', async (t) => {
  const raw = Buffer.from('Subject: x\r\n\r\n.\r\nMAIL FROM:<a@b.test>\r\n..\r\n')
  const render = rendererOf({
    1: storedContent({ raw }),
    2: storedContent({ subject: 'x', text: '.\nMAIL\n..', html: '.\n.' }),
    3: storedContent({ subject: 'x', text: '.\n', attachments: [attachment({ bytes: Buffer.from('.\r\n.') })] }),
  })
  for (const [contentId, dots] of [
    [1, '\r\n..\r\nMAIL FROM:<a@b.test>\r\n...\r\n'],
    [2, '=2E'],
    [3, '=2E'],
  ] as const) {
    const { bytes, provenFrom } = await render(contentId)
    t.equal(wireOf(bytes, provenFrom), wireOf(bytes), 'as if all of it was looked at')
    t.match(wireOf(bytes, provenFrom), dots)
  }
  t.equal((await render(1)).provenFrom, (await render(1)).bytes.length, 'nothing of it is taken for granted')
})

t.test('a retry has the same bytes, and each message its own, however many share a content by then', async (t) => {
  const lines = 'a line that all of them have  in common\n'.repeat(20)
  const render = rendererOf({
    1: storedContent({ subject: 'x', text: `Hi {{name}}\n${lines}{{name}}`, html: `<p>{{name}}\n${lines}</p>` }),
    2: storedContent({ subject: 'y', text: `Dear {{name}}\n${lines}`, tracking: { opens: true, clicks: true } }),
  })
  const first = new Map<string, string>()
  for (let round = 0; round < 4; round++) {
    for (const [contentId, key] of [
      [1, 1],
      [2, 2],
      [1, 3],
      [2, 4],
    ] as const) {
      const text = String((await render(contentId, key)).bytes)
      const known = first.get(`${contentId} ${key}`)
      if (known === undefined) first.set(`${contentId} ${key}`, text)
      else t.equal(text, known, `content ${contentId}, message ${key}`)
      t.match(text, contentId === 1 ? `Hi name ${key}\r\n` : `Dear name ${key}\r\n`)
    }
  }
})

t.test('a large content that several share outlives each of them', async (t) => {
  const size = 2.25 * 2 ** 20
  const render = rendererOf({
    // Each read has memory of its own.
    get 1() {
      const bytes = Buffer.from(new ArrayBuffer(size)).fill('x')
      return storedContent({ subject: 'x', text: 'Hi', attachments: [attachment({ bytes })] })
    },
  })
  const together = await Promise.all([1, 2, 3].map((key) => render(1, key)))
  for (const { onGone } of together) onGone?.()
  for (const { bytes } of [...together, await render(1, 4)]) t.ok(bytes.length > size)
})

t.test('nothing is kept for a row that is reported, also when it was never rendered', async (t) => {
  const stored = storedContent({ subject: 'x', text: 'Hi' })
  const { reader } = createRenderer({}, {})
  let reads = 0
  const { renderer, row } = createRenderer(
    {},
    {
      reader: {
        async readAhead([key = 0], [contentId = 0]) {
          const facts = await reader.renderFacts(key)
          return { facts: new Map(facts && [[key, facts]]), contents: new Map([[contentId, stored]]) }
        },
        async content() {
          reads += 1
          return stored
        },
      },
    },
  )
  const readsOf = async (sent: DispatchedRow): Promise<number> => {
    reads = 0
    await renderer.render(sent, '8bit')
    return reads
  }
  await renderer.readAhead([row(1, 1)])
  t.equal(await readsOf(row(1, 1)), 0, 'it was read ahead')
  await renderer.readAhead([row(2, 2)])
  renderer.forget(row(2, 2))
  t.equal(await readsOf(row(2, 2)), 1, 'it was reported')
  const reading = renderer.readAhead([row(3, 3)])
  renderer.forget(row(3, 3))
  await reading
  t.equal(await readsOf(row(3, 3)), 1, 'it was reported while it was read')
})

t.test('the platform signs below the sending domain, its own mail once, and nothing alone', async (t) => {
  const keyOf = async (domain: string): Promise<[string, SealedSigningKey[]]> => {
    const request = { keyRing: createKeyRing(MASTER_KEY), domain, selector: 's', bits: 2_048, now: 0 }
    const { sealedPrivateKey } = await createDkimKey({ ...request, algorithm: 'ed25519-sha256', role: 'active' })
    return [domain, [{ domain, selector: 's', algorithm: 'ed25519-sha256', sealedPrivateKey }]]
  }
  const [own, platform] = [await keyOf('acme.com'), await keyOf('platform.example')]
  const foreign: typeof own = [platform[0], own[1].map((key) => ({ ...key, domain: platform[0] }))]
  const cases: [keys: [string, SealedSigningKey[]][], platformDomain: string | undefined, signers: string[]][] = [
    [[own, platform], 'platform.example', ['acme.com', 'platform.example']],
    [[own, platform], undefined, ['acme.com']],
    [[own], 'platform.example', ['acme.com']],
    // Its key does not open: that holds up nobody's mail.
    [[own, foreign], 'platform.example', ['acme.com']],
    [[own], 'acme.com', ['acme.com']],
    [[platform], 'platform.example', []],
  ]
  for (const [keys, platformDomain, signers] of cases) {
    const parts = { keys: Object.fromEntries(keys), ...(platformDomain === undefined ? {} : { platformDomain }) }
    const { bytes } = await rendererOf({ 1: storedContent({ subject: 'x', text: 'Hi' }) }, parts)(1)
    t.same(
      [...String(bytes).matchAll(/\bd=([a-z.]+);/g)].map(([, domain]) => domain),
      signers,
    )
  }
})

t.test('large messages are rendered as long as there is room for them; a failure takes none', async (t) => {
  const large = (): StoredContent =>
    storedContent({
      subject: 'x',
      text: 'x',
      html: null,
      attachments: [attachment({ bytes: Buffer.alloc(5 * 2 ** 20) })],
    })
  const render = rendererOf({
    1: large(),
    2: large(),
    3: storedContent({ subject: 'x', text: 'x', html: null }),
    4: large(),
  })
  const first = await render(1)
  const second = render(2)
  t.equal(await Promise.race([second, render(3)]).then(({ bytes }) => bytes.length < 2 ** 20), true, 'small ones pass')
  first.onGone?.()
  const { bytes, onGone } = await second
  t.ok(bytes.length > 6 * 2 ** 20)
  onGone?.()
  const failing = rendererOf({ 1: { ...large(), headers: null as never }, 2: large() })
  await t.rejects(failing(1))
  t.ok((await failing(2)).bytes.length > 6 * 2 ** 20)
})
