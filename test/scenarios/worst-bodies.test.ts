/**
 * The worst body of each kind at every route that takes one, and at the door for submission, while a second connection
 * asks for `/v1/health` all the time; also several of the largest at once, and a click on a large html. Each answer is
 * 200 or a clear refusal, the second connection always gets its answers, memory stays within bounds, and no turn of the
 * main thread takes long, in time of the processor. How long the answers took is printed, and not judged: it depends on
 * the machine.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { createTransport } from 'nodemailer'
import t, { type Test } from 'tap'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { clickToken } from '../../src/mail/message-token.ts'
import { startSandbox, type SandboxProcess } from '../support/sandbox-process.ts'
import { watchThreads } from '../support/thread-turns.ts'
import { attachment, COSTLY_REQUESTS, filled, isFull, MAIL_KINDS, MEBIBYTE, worstBodies } from './worst-kinds.ts'

/**
 * Beyond what the process has after its start; bodies under way alone may take a third of it. Beside other tests garbage
 * is collected later, so that only the full size, which runs alone, has the narrow bound.
 */
const MOST_GROWTH = (isFull ? 288 : 384) * MEBIBYTE
/** With several of the largest at once, beside what all those before have left to the garbage collector. */
const MOST_GROWTH_TOGETHER = (isFull ? 448 : 576) * MEBIBYTE
/** Milliseconds of the processor; the law is 50. Some machines take ten times as long, and what blows up takes seconds. */
const LONGEST_TURN = isFull ? 100 : 1_000
/** Served, or refused for what the request is. 403: an administrator's route. 429: too many requests. */
const GOOD = new Set([200, 201, 400, 403, 404, 409, 413, 415, 422, 429])
const COMMON = { from: 'shop@sandbox.test', subject: 'x' }
const ENVELOPE = { from: COMMON.from, to: ['ada@dest.test'] }
const HEADER = `From: ${COMMON.from}\r\nTo: ada@dest.test\r\nSubject: x\r\nMIME-Version: 1.0\r\n`

t.setTimeout(isFull ? 1_800_000 : 300_000)

/** A thread of its own, so that making bodies does not count. Answers each message with the waits since the last one. */
const ASKING = `
  const { parentPort, workerData } = require('node:worker_threads')
  let waits = [], failures = 0
  parentPort.on('message', () => { parentPort.postMessage({ waits, failures }); waits = []; failures = 0 })
  const run = async () => {
    for (;;) {
      const startedAt = performance.now()
      await fetch(workerData).then((answer) => answer.arrayBuffer()).catch(() => { failures += 1 })
      waits.push(performance.now() - startedAt)
    }
  }
  run()
`

t.test('no body stops the server', async (t) => {
  const turns = watchThreads(t)
  const sandbox = await startSandbox(t, turns)
  // What the sandbox's receiving server does with mail is no part of this.
  await sandbox.ask('PUT', '/dev/replies', [{ to: '*', stage: 'rcpt', reply: '550 5.1.1 nobody', times: 100_000 }])
  const watched = await watchServer(t, sandbox)
  turns.begin()
  await tryBodies(t, sandbox, watched)
  await tryMail(t, sandbox, watched)
  await tryCostly(t, sandbox, watched)
  t.ok(watched.grown() < MOST_GROWTH, 'memory stays within bounds')
  await tryClick(t, sandbox, watched)
  await tryTogether(t, sandbox, watched)
  watched.tell()
  t.comment(`longest turns (goal 50 ms): ${turns.longest().join(', ')}`)
  const longest = Number(/^main (\d+)$/m.exec(turns.longest().join('\n'))?.[1])
  t.ok(longest < LONGEST_TURN, `the longest turn of the main thread took ${longest} ms of the processor`)
  t.ok(watched.tried() > 100, 'the routes that take a body were tried')
  t.ok(watched.grown() < MOST_GROWTH_TOGETHER, 'memory stays within bounds, also when several come at once')
  t.equal((await fetch(new URL('/v1/health', sandbox.banner.base_url))).status, 200, 'and it still runs')
})

type Watched = Awaited<ReturnType<typeof watchServer>>

/** The second connection, and the memory of the process. */
async function watchServer(t: Test, { banner }: SandboxProcess) {
  const asking = new Worker(ASKING, { eval: true, workerData: new URL('/v1/health', banner.base_url).href })
  t.teardown(() => asking.terminate())
  const answers = async (): Promise<{ waits: number[]; failures: number }> => {
    asking.postMessage(null)
    const [given] = await once(asking, 'message')
    return given
  }
  const pid = Number(readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, 'utf8').trim().split(' ')[0])
  const idle = residentBytes(pid)
  const all: number[] = []
  let most = idle
  /** Since the last look. */
  let mostNow = idle
  let tried = 0
  const measure = (): void => {
    mostNow = Math.max(mostNow, residentBytes(pid))
    most = Math.max(most, mostNow)
  }
  const measuring = setInterval(measure, 5)
  t.teardown(() => clearInterval(measuring))
  await answers()
  return {
    /** After something was tried: fails for each answer that the second connection did not get. */
    async look(name: string, answer: string): Promise<void> {
      const { waits, failures } = await answers()
      if (failures > 0) t.fail(`${name}: the second connection lost ${failures} answers`)
      all.push(...waits)
      tried += 1
      measure()
      const memory = `${(mostNow / MEBIBYTE).toFixed(0)} MiB`
      mostNow = 0
      t.comment(`${name}: ${answer.slice(0, 60)}, longest wait ${Math.max(0, ...waits).toFixed(0)} ms, ${memory}`)
    },
    tried: () => tried,
    grown: () => most - idle,
    tell(): void {
      const sorted = all.toSorted((left, right) => left - right)
      const p99 = sorted[Math.floor(sorted.length * 0.99)] ?? 0
      const longest = (sorted.at(-1) ?? 0).toFixed(0)
      t.comment(`${tried} bodies; waits for /v1/health: p99 ${p99.toFixed(0)} ms, longest ${longest} ms`)
      t.comment(`memory ${(idle / MEBIBYTE).toFixed(0)} MiB idle, at most ${(most / MEBIBYTE).toFixed(0)} MiB`)
    },
  }
}

function residentBytes(pid: number): number {
  const kibibytes = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
  return Number(kibibytes) * 1024
}

async function tryBodies(t: Test, { banner }: SandboxProcess, watched: Watched): Promise<void> {
  for (const { method, path, type, kind, body } of worstBodies()) {
    const headers = { Authorization: `Bearer ${banner.key}`, 'Content-Type': type, Connection: 'close' }
    const answer = await fetch(new URL(path, banner.base_url), { method, headers, body }).catch(() => null)
    // Who goes on sending after a 413 may lose the answer with the connection.
    const status = answer?.status ?? (body.length > MEBIBYTE ? 413 : 0)
    await answer?.text()
    if (!GOOD.has(status)) t.fail(`${method} ${path}, ${kind}: ${status}`)
    await watched.look(`${method} ${path}, ${kind}`, String(status))
  }
}

/** Sends one mail and gives the answer. */
function submitter({ banner }: SandboxProcess): (raw: string) => Promise<string> {
  const { smtp } = banner as unknown as { smtp: string }
  const [host = '', port] = smtp.split(':')
  const auth = { user: 'apikey', pass: banner.key }
  const transport = createTransport({ host, port: Number(port), ignoreTLS: true, auth })
  return (raw) => transport.sendMail({ envelope: ENVELOPE, raw: HEADER + raw }).then(({ response }) => response, String)
}

async function tryMail(t: Test, sandbox: SandboxProcess, watched: Watched): Promise<void> {
  const submit = submitter(sandbox)
  for (const [kind, make] of Object.entries(MAIL_KINDS)) {
    const answer = await submit(make())
    if (!/\b(?:250|552|554) /.test(answer)) t.fail(`submission, ${kind}: ${answer}`)
    await watched.look(`submission, ${kind}`, answer)
  }
}

async function post({ banner }: SandboxProcess, path: string, body: object): Promise<Response> {
  const headers = { Authorization: `Bearer ${banner.key}`, 'Content-Type': 'application/json' }
  const to = path === 'batch' ? {} : { to: 'ada@dest.test' }
  const text = JSON.stringify({ ...COMMON, ...to, ...body })
  return fetch(new URL(`/v1/email/${path}`, banner.base_url), { method: 'POST', headers, body: text })
}

async function tryCostly(t: Test, sandbox: SandboxProcess, watched: Watched): Promise<void> {
  for (const [path, kind, make] of COSTLY_REQUESTS) {
    const answer = await post(sandbox, path, make())
    await answer.arrayBuffer()
    if (!GOOD.has(answer.status)) t.fail(`${path}, ${kind}: ${answer.status}`)
    await watched.look(`${path}, ${kind}`, String(answer.status))
  }
}

/** The largest that are valid: each is taken, or told to come again. */
async function tryTogether(t: Test, sandbox: SandboxProcess, watched: Watched): Promise<void> {
  const body = { text: 'x', attachments: [attachment('a'), attachment('b')] }
  const answers = await Promise.all(Array.from({ length: 6 }, () => post(sandbox, 'send', body)))
  const statuses = answers.map(({ status, headers }) => `${status} ${headers.get('retry-after') ?? ''}`.trim())
  t.ok(statuses.includes('200'), 'large requests at once: some are taken')
  t.ok(
    statuses.every((each) => each === '200' || /^503 [1-9]/.test(each)),
    `and the others told when: ${statuses.join()}`,
  )
  await watched.look('6 sends with attachments at once', statuses.join())
  const submit = submitter(sandbox)
  const raw = `\r\n${`${'x'.repeat(98)}\r\n`.repeat(390_000)}`
  const replies = await Promise.all(Array.from({ length: 6 }, () => submit(raw)))
  t.ok(
    replies.some((each) => each.startsWith('250 ')),
    'large mails at once: some are taken',
  )
  t.ok(
    replies.every((each) => /\b(?:250|452) /.test(each)),
    `and the others may come again: ${replies.join('; ')}`,
  )
  await watched.look('6 submissions of 39 MB at once', replies.join())
}

/** Whoever may send can click on what was sent. */
async function tryClick(t: Test, sandbox: SandboxProcess, watched: Watched): Promise<void> {
  const { banner, folder } = sandbox
  const keyRing = createKeyRing(Buffer.from(readFileSync(join(folder, 'master.key'), 'utf8'), 'base64'))
  const links = Array.from({ length: 1_000 }, (_, index) => `<a href="https://a.test/${index}{{{a}}}">`)
  const kinds: [kind: string, linkNumber: number, target: string, body: object][] = [
    ['a large html', 0, 'https://a.test/x', { html: filled('<a href="https://a.test/x">y</a>') }],
    [
      'links with long values',
      links.length - 1,
      `https://a.test/999${'&'.repeat(1_000)}`,
      { html: links.join(''), variables: { a: '&amp;'.repeat(1_000) } },
    ],
  ]
  for (const [kind, linkNumber, target, body] of kinds) {
    const sent = await post(sandbox, 'send', { ...body, track: { clicks: true } })
    const { message_id: id } = (await sent.json()) as { message_id: string }
    const url = new URL(`/c/${clickToken(id, linkNumber, keyRing.key('click'))}`, banner.base_url)
    for (let time = 0; time < 5; time += 1) {
      const { status, headers } = await fetch(url, { redirect: 'manual' })
      t.match([status, headers.get('location')], [302, target])
    }
    await watched.look(`clicks on ${kind}`, '302')
  }
}
