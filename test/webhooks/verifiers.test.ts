/**
 * Real deliveries are verified by programs that were written after the specification alone, in the languages of
 * receivers, and by our own function for them. What was changed on the way is refused by all.
 */
import { spawnSync } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { VERIFICATION } from '../../src/console/screens/verification.ts'
import { verifyWebhook } from '../../src/clients/webhooks/verify-webhook.ts'
import { PYTHON } from '../support/programs.ts'
import { webhookReceiver } from '../support/webhook-receiver.ts'
import { startEngine } from './engine-harness.ts'

const VERIFIERS: [program: string, file: string][] = [
  [PYTHON, 'verify.py'],
  ['php', 'verify.php'],
  ['ruby', 'verify.rb'],
]
const SECRETS = ['topsecret', 'whsec_dG9wc2VjcmV0', 'schlüssel 🔑', ' spaces ', `"quotes'\\`, 'x'.repeat(256)]

interface Signed {
  body: Buffer
  signature: string
  secret: string
}

function verdicts(program: string, file: string, signed: readonly Signed[]): string[] | null {
  const path = fileURLToPath(new URL(`./verifiers/${file}`, import.meta.url))
  const input = signed.map((each) => JSON.stringify({ ...each, body: each.body.toString('base64') })).join('\n')
  const { stdout, stderr, error, status } = spawnSync(program, [path], { input: `${input}\n`, encoding: 'utf8' })
  if (error !== undefined) return null
  if (status !== 0) throw new Error(`${program}: ${stderr}`)
  return stdout.trim().split('\n')
}

t.test('deliveries verify in other languages, and changed ones do not', async (t) => {
  const harness = await startEngine(t)
  const good: Signed[] = []
  for (const secret of SECRETS) {
    const receiver = await webhookReceiver()
    t.teardown(() => receiver.close())
    await harness.addEndpoint(receiver.url, secret)
    await harness.deliver(2)
    await harness.pump('both arrive', () => receiver.requests.length >= 2)
    for (const { body, headers } of receiver.requests) {
      good.push({ body, signature: String(headers['x-service-signature']), secret })
    }
  }
  const bad = good.flatMap((signed): Signed[] => [
    { ...signed, body: Buffer.concat([signed.body, Buffer.from(' ')]) },
    { ...signed, secret: `${signed.secret}x` },
    { ...signed, signature: signed.signature.replace(/^./, (digit) => (digit === '0' ? '1' : '0')) },
    { ...signed, signature: '' },
  ])
  const all = [...good, ...bad]
  const expected = [...good.map(() => 'true'), ...bad.map(() => 'false')]
  t.same(
    all.map(({ body, signature, secret }) => String(verifyWebhook(body, signature, secret))),
    expected,
  )
  for (const [program, file] of VERIFIERS) {
    const found = verdicts(program, file, all)
    if (found === null) t.comment(`${program} is not installed: left out`)
    else t.same(found, expected, `${program} says the same of ${all.length} deliveries`)
  }
})

const BODY =
  '{"event":"email.opened","timestamp":1795220000,"data":' +
  '{"message_id":"msg_01kapg6t3vq8x2m5r7w9y4c6de","recipient":"ada@gmail.com"}}'
/** By `topsecret`: the check value of the contract. */
const SIGNATURE = '9c0a50b424617178408af9dea2ae38982ab6cbbae42dd78dac85de313d99e929'

/** Headers as literals: the right one, then what is none; the last is none at all. */
const HEADERS = [SIGNATURE, `0${SIGNATURE.slice(1)}`, '', 'é'].map((header) => JSON.stringify(header)).join(', ')
const CALLS: Record<string, [program: string, flags: string[], calls: string]> = {
  Node: [
    process.execPath,
    ['--input-type=module', '-e'],
    `for (const header of [${HEADERS}, undefined]) console.log(isOurs(Buffer.from('${BODY}'), header, 'topsecret'))`,
  ],
  Python: [PYTHON, ['-c'], `for header in [${HEADERS}, None]: print(is_ours(b'${BODY}', header, 'topsecret'))`],
  PHP: [
    'php',
    ['-r'],
    `foreach ([${HEADERS}, null] as $header) { echo json_encode(isOurs('${BODY}', $header, 'topsecret')), "\\n"; }`,
  ],
  Ruby: ['ruby', ['-e'], `[${HEADERS}, nil].each { |header| puts ours?('${BODY}', header, 'topsecret') }`],
}

t.test('the examples that the console shows do the same', async (t) => {
  for (const [language, [program, flags, calls]] of Object.entries(CALLS)) {
    const words = [...flags, `${VERIFICATION[language]}\n${calls}`]
    const { stdout, stderr, error } = spawnSync(program, words, { encoding: 'utf8' })
    if (error !== undefined) t.comment(`${program} is not installed: left out`)
    else t.equal(stdout.toLowerCase(), 'true\nfalse\nfalse\nfalse\nfalse\n', `${language} ${stderr}`)
  }
})

t.test('what is no signature or no body does not fit, and only a missing secret throws', async (t) => {
  const [body, signature] = [BODY, SIGNATURE]
  t.ok(verifyWebhook(body, signature, 'topsecret'), 'the check value of the contract')
  t.ok(verifyWebhook(Buffer.from(body), signature, 'topsecret'))
  for (const header of [
    undefined,
    null,
    7,
    '',
    [signature],
    signature.toUpperCase(),
    `sha256=${signature}`,
    `${signature}\n`,
    signature.slice(1),
    `${signature}0`,
    'g'.repeat(64),
    '\u{1f511}'.repeat(16),
  ]) {
    t.notOk(verifyWebhook(body, header, 'topsecret'), JSON.stringify(header))
  }
  for (const unread of [undefined, null, '', JSON.parse(body) as string, 7 as unknown as string, [body] as never]) {
    t.notOk(verifyWebhook(unread, signature, 'topsecret'), `a body that is ${JSON.stringify(unread)}`)
  }
  // What anybody can sign with.
  const forged = createHmac('sha256', '').update(body).digest('hex')
  for (const secret of ['', undefined as never, null as never]) {
    t.throws(() => verifyWebhook(body, forged, secret), { message: 'verifyWebhook: there is no secret' })
  }
})
