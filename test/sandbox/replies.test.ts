/**
 * `/dev/replies` over real HTTP, and what the capture server then answers over real SMTP, stage by stage.
 */
import { createSecretKey } from 'node:crypto'
import { once } from 'node:events'
import { connect } from 'node:net'
import t from 'tap'
import { createLogger } from '../../src/base/logger.ts'
import { createAdjustableClock } from '../../src/sandbox/adjustable-clock.ts'
import { createDevRoutes } from '../../src/sandbox/dev-routes.ts'
import { createInbox } from '../../src/sandbox/inbox.ts'
import { createCaptureReplies } from '../../src/capture/replies.ts'
import { createWebhookInspector } from '../../src/sandbox/webhook-inspector.ts'
import { until } from '../support/until.ts'
import { withCapture, type CaptureWorld } from './capture-world.ts'
import { devServer, type DevAnswer, type DevServer } from './dev-server.ts'
import { sendMail, smtpDialogue } from './smtp-dialogue.ts'

interface World extends CaptureWorld {
  dev: DevServer
  put(...rules: object[]): Promise<DevAnswer>
  /** The replies to these lines. */
  say(...lines: string[]): Promise<string[]>
}

async function withWorld(random: (() => number) | undefined, work: (world: World) => Promise<void>): Promise<void> {
  const clock = createAdjustableClock({ speed: 1, ahead: 0 })
  const logger = createLogger({ level: 'silent' })
  const replies = createCaptureReplies(random)
  const inbox = createInbox({
    keep: 10,
    logger,
    verifyDkim: async () => ({ result: 'none', domain: null, selector: null }),
    bounceKey: async () => createSecretKey(Buffer.alloc(32)),
  })
  const inspector = createWebhookInspector({ clock, secretsFor: () => [] })
  const dev = await devServer((baseUrl) =>
    createDevRoutes({ baseUrl, inbox, inspector, clock, replies, onClockChange: () => {} }),
  )
  const onMail = inbox.receive
  try {
    await withCapture({ clock, replies, onMail }, (world) =>
      work({
        ...world,
        dev,
        put: (...rules) => dev.ask('PUT', '/dev/replies', { body: JSON.stringify(rules) }),
        say: async (...lines) => (await smtpDialogue({ port: world.port }, lines)).slice(1),
      }),
    )
  } finally {
    await dev.close()
  }
}

const TO_RCPT = ['EHLO me', 'MAIL FROM:<a@acme.com>', 'RCPT TO:<ada@slow.example>']
const MESSAGE = 'Subject: Hello\r\n\r\nHi'

t.test('a refusal at each stage is given as it was written, so often, and then all is as usual', async (t) => {
  await withWorld(undefined, async ({ put, say, port, dev }) => {
    const later = (stage: string): object => ({ stage, reply: '451 4.3.0 later', times: 1 })
    for (const [stage, lines] of [
      ['ehlo', ['EHLO me']],
      ['starttls', ['EHLO me', 'STARTTLS']],
      ['mail', ['EHLO me', 'MAIL FROM:<a@acme.com>']],
      ['rcpt', TO_RCPT],
      ['data', [...TO_RCPT, 'DATA']],
      ['dot', [...TO_RCPT, 'DATA', `${MESSAGE}\r\n.`]],
    ] as const) {
      t.equal((await put(later(stage))).status, 200)
      t.equal((await say(...lines)).at(-1), '451 4.3.0 later', stage)
      t.match((await say(...lines)).at(-1), /^(2|354)/, `${stage}, the second time`)
    }
    await put({ stage: 'connect', reply: '421 4.7.0 too many connections', times: 1 })
    t.same(await smtpDialogue({ port }, []), ['421 4.7.0 too many connections'])
    t.match((await smtpDialogue({ port }, []))[0], /^220 /)
    t.same((await dev.get('/dev/replies')).data, [], 'a rule is gone after its last time')
    t.match((await dev.get('/dev/inbox')).data, [{ subject: 'Hello' }], 'what was refused at the dot was not kept')
  })
})

t.test('a connection is closed without a word; after the dot the message was taken', async (t) => {
  await withWorld(undefined, async ({ put, say, port, dev }) => {
    for (const [stage, lines] of [
      ['connect', []],
      ['ehlo', ['EHLO me']],
      ['starttls', ['EHLO me', 'STARTTLS']],
      ['mail', ['EHLO me', 'MAIL FROM:<>']],
      ['rcpt', TO_RCPT],
      ['data', [...TO_RCPT, 'DATA']],
      ['dot', [...TO_RCPT, 'DATA', `${MESSAGE}\r\n.`]],
    ] as const) {
      await put({ stage, reply: 'close', times: 1 })
      await t.rejects(say(...lines), /the connection ended after: $/, stage)
    }
    t.match((await dev.get('/dev/inbox')).data, [{ subject: 'Hello' }])
    t.match(await sendMail({ port, to: 'ada@example.com', message: MESSAGE }), /^250/)
  })
})

t.test('a sender that leaves while the server waits ends nothing', async (t) => {
  await withWorld(undefined, async ({ put, say, port, dev }) => {
    for (const [stage, lines] of [
      ['starttls', ['EHLO me', 'STARTTLS']],
      ['data', [...TO_RCPT, 'DATA']],
    ] as const) {
      await put({ stage, reply: { delay: '200ms' }, times: 2 })
      const socket = connect(port, '127.0.0.1')
      for (const line of lines) {
        await once(socket, 'data')
        socket.write(`${line}\r\n`)
      }
      const rule = async (): Promise<unknown> => (await dev.get('/dev/replies')).data
      await until(`${stage} waits`, async () => ((await rule()) as { times: number }[])[0]?.times === 1)
      socket.resetAndDestroy()
      t.match((await say(...lines)).at(-1), /^[23]/, `${stage} for the next one, whose wait ends later`)
    }
  })
})

t.test('STARTTLS can be missing', async (t) => {
  await withWorld(undefined, async ({ put, say }) => {
    await put({ stage: 'starttls', reply: 'missing', times: 1 })
    const [greeting, answer] = await say('EHLO me', 'STARTTLS')
    t.notMatch(greeting, /STARTTLS/)
    t.match(greeting, /8BITMIME/)
    t.match(answer, /^500 /)
    t.match((await say('EHLO me'))[0], /STARTTLS/)
  })
})

t.test('a delay waits in real time and lets the next rule decide', async (t) => {
  await withWorld(undefined, async ({ put, say }) => {
    await put({ stage: 'rcpt', reply: { delay: '300ms' } }, { stage: 'rcpt', reply: '550 5.1.1 no', times: 1 })
    const startedAt = performance.now()
    t.equal((await say(...TO_RCPT)).at(-1), '550 5.1.1 no')
    t.match((await say(...TO_RCPT)).at(-1), /^250/)
    t.ok(performance.now() - startedAt >= 600)
  })
})

t.test('a rule is for some recipients', async (t) => {
  await withWorld(undefined, async ({ put, say }) => {
    const answers = async (to: string): Promise<boolean[]> => {
      await put({ to, stage: 'rcpt', reply: '550 5.1.1 no' })
      const lines = ['ada@slow.example', 'Ada+x@Slow.example', 'ada@very.slow.example', 'bob@example.com'].map(
        (recipient) => `RCPT TO:<${recipient}>`,
      )
      return (await say('EHLO me', 'MAIL FROM:<>', ...lines)).slice(2).map((reply) => reply.startsWith('550'))
    }
    t.same(await answers('*'), [true, true, true, true])
    t.same(await answers('slow.example'), [true, true, false, false])
    t.same(await answers('*@slow.example'), [true, true, false, false])
    t.same(await answers('*.slow.example'), [false, false, true, false])
    t.same(await answers('ada*@*.example'), [true, true, true, false])
    t.same(await answers('bob@example.com'), [false, false, false, true])
    t.same(await answers('b.b@example.com'), [false, false, false, false], 'nothing but the star is special')
    t.same((await say(...TO_RCPT.slice(0, 2), 'RCPT TO:<bob@example.com>', 'DATA')).at(-1)?.slice(0, 3), '354')
  })
})

t.test('a rule holds with its probability', async (t) => {
  const drawn = [0.2, 0.9, 0.49]
  await withWorld(
    () => drawn.shift() ?? 0,
    async ({ put, say }) => {
      await put({ to: '*', stage: 'rcpt', reply: '451 later', times: 2, probability: 0.5 })
      const replies = [await say(...TO_RCPT), await say(...TO_RCPT), await say(...TO_RCPT), await say(...TO_RCPT)]
      t.same(
        replies.map((lines) => lines.at(-1)?.slice(0, 3)),
        ['451', '250', '451', '250'],
      )
    },
  )
})

t.test('rules are shown as they were written, replaced as a whole, and removed', async (t) => {
  await withWorld(undefined, async ({ put, dev }) => {
    const rules = [
      { to: '*@slow.example', stage: 'rcpt', reply: '451 4.3.0 later', times: 3, probability: 1 },
      { to: '*', stage: 'connect', reply: { delay: '5s' }, times: null, probability: 0.5 },
    ]
    t.same((await put(...rules)).data, rules)
    t.same((await dev.get('/dev/replies')).data, rules)
    await put(rules[1] ?? {})
    t.same((await dev.get('/dev/replies')).data, [rules[1]])
    t.same((await dev.ask('DELETE', '/dev/replies')).data, { deleted: 1 })
    t.same((await dev.get('/dev/replies')).data, [])
  })
})

t.test('a wrong rule is named, and nothing changes', async (t) => {
  await withWorld(undefined, async ({ put, dev }) => {
    const kept = { to: '*', stage: 'rcpt', reply: '451 later', times: null, probability: 1 }
    await put(kept)
    for (const [rule, problem] of [
      [{ stage: 'rcpt' }, '[1].reply: '],
      [{ ...kept, stage: 'quit' }, '[1].stage: '],
      [{ ...kept, reply: '250 ok' }, '[1].reply: '],
      [{ ...kept, reply: '451 a\r\nb' }, '[1].reply: '],
      [{ ...kept, reply: { delay: '1h' } }, '[1].reply.delay: '],
      [{ ...kept, reply: { delay: 5 } }, '[1].reply.delay: '],
      [{ ...kept, reply: 'missing' }, '[1].reply: '],
      [{ ...kept, times: 0 }, '[1].times: '],
      [{ ...kept, probability: 2 }, '[1].probability: '],
      [{ ...kept, to: 7 }, '[1].to: '],
      [{ ...kept, to: 'a*a*a*a*' }, '[1].to: '],
      [{ ...kept, to: 'a.b', stage: 'mail' }, '[1].to: must be "*" at mail'],
      [{ ...kept, often: true }, '[1].often: '],
      [7, '[1].stage: '],
    ] as const) {
      const answer = await put(kept, rule as object)
      t.equal(answer.status, 422, JSON.stringify(rule))
      const { error } = answer.data as { error: { details: string } }
      t.ok(error.details.includes(problem), `${error.details} has ${problem}`)
    }
    t.equal((await put(...Array.from({ length: 101 }, () => kept))).status, 422)
    t.equal((await dev.ask('PUT', '/dev/replies', { body: '{}' })).status, 422)
    t.equal((await dev.ask('PUT', '/dev/replies', { body: '[' })).status, 400)
    t.equal((await dev.ask('PUT', '/dev/replies', { body: ' '.repeat(300_000) })).status, 413)
    t.same((await dev.get('/dev/replies')).data, [kept])
  })
})

t.test('a message has the transcript of its part of the session', async (t) => {
  await withWorld(undefined, async ({ say, dev }) => {
    const transaction = ['MAIL FROM:<a@acme.com>', 'RCPT TO:<ada@example.com>', 'DATA', `${MESSAGE}\r\n.`]
    await say('EHLO me', ...transaction, ...transaction)
    const entries = (await dev.get('/dev/inbox')).data as { id: string }[]
    const transcripts = await Promise.all(
      entries
        .toReversed()
        .map(async ({ id }) => ((await dev.get(`/dev/inbox/${id}`)).data as { transcript: string[] }).transcript),
    )
    const lines = [
      'C: MAIL FROM:<a@acme.com>',
      'S: 250 Accepted',
      'C: RCPT TO:<ada@example.com>',
      'S: 250 Accepted',
      'C: DATA',
      /^S: 354 /,
      'S: 250 2.0.0 kept',
    ]
    t.match(transcripts[0]?.slice(0, 3), [/^S: 220 mx\.capture/, 'C: EHLO me', /^S: 250-mx\.capture/])
    t.match(transcripts[0]?.slice(-lines.length), lines)
    t.match(transcripts[1], lines)
    t.equal(transcripts[1]?.length, lines.length)
  })
})
