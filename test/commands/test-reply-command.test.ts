/**
 * `sternpost config test-reply`: which rules a reply matches, where they stand, and the three decisions.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { sternpost } from './command-server.ts'

const SHIPPED = { STERNPOST_CONFIG: 'config' }
const testReply = (...words: string[]) => sternpost(['config', 'test-reply', ...words], SHIPPED)
const judged = async (...words: string[]): Promise<unknown> => JSON.parse((await testReply(...words, '--json')).stdout)

t.test('it says both rules with file and line, and the three decisions', async (t) => {
  const text = '421-4.7.28 Our system has detected an unusual rate of unsolicited mail'
  const { code, stdout, stderr } = await testReply(text, '--provider', 'google', '--stage', 'dot')
  t.same([code, stderr], [0, ''])
  t.match(
    stdout,
    new RegExp(
      [
        '^421 4\\.7\\.28 at dot, provider google$',
        '^ {2}reply rule {4}google-unusual-rate \\(\\S*providers\\.yaml:\\d+\\), limit$',
        '^ {2}bounce rule {3}rate \\(\\S*bounces\\.yaml:\\d+\\)$',
        '^ {2}category {6}rate$',
        '^ {2}1 now {9}It is tried again on schedule; only the end of its lifetime ends it\\.$',
        '^ {2}2 at the end {2}bounce type soft, code 4\\.4\\.7$',
        '^ {2}3 address {5}is not suppressed$',
      ].join('\\n'),
      'm',
    ),
  )
})

t.test('each category leads to its own three decisions', async (t) => {
  const at = (now: RegExp, type: string, code: string, suppress: string) => ({
    now,
    bounce_type: type,
    bounce_code: code,
    suppress,
  })
  const cases: [string[], object][] = [
    [['550 5.1.1 No such user'], at(/^The message bounces at once/, 'hard', '5.1.1', 'always')],
    [['550 5.1.1 No such user', '--stage', 'connect'], { suppress: 'never' }],
    [['450 4.1.1 No such user'], at(/on schedule/, 'soft', '4.4.7', 'never')],
    [['552 5.2.2 Mailbox full'], at(/3 times more over 24 h, then it bounces/, 'soft', '5.2.2', 'never')],
    [['554 5.7.1 blocked using zen.spamhaus.org'], at(/schedule, from another IP/, 'soft', '4.4.7', 'never')],
    [['550 5.7.26 DMARC policy', '--stage', 'dot'], at(/2 times more/, 'block', '5.7.26', 'never')],
    [['500 command not understood\\n500 really', '--stage', 'mail'], { category: String, now: String }],
    [['550 5.1.1 No such user', '--stage', 'dsn'], at(/report is final/, 'hard', '5.1.1', 'always')],
    [['250 2.0.0 OK', '--stage', 'dot'], { now: 'It is no refusal.', bounce_type: 'none', reply_rule: null }],
  ]
  for (const [words, expected] of cases) t.match(await judged(...words), expected, words.join(' '))
})

t.test('rules of a folder count, and its mistakes are told', async (t) => {
  const folder = t.testdir({})
  mkdirSync(join(folder, 'bounces.d'))
  const rule = { id: 'own', match: 'purple', category: 'inactive', suppress: 'second', example: '550 purple' }
  const file = join(folder, 'bounces.d', '10-own.yaml')
  writeFileSync(file, `rules:\n  - ${JSON.stringify(rule)}\n`)
  const { stdout } = await testReply('550 the purple one', '--config', folder, '--json')
  t.match(JSON.parse(stdout), { bounce_rule: { id: 'own', file, line: 2 }, category: 'inactive', suppress: 'second' })
  t.match(await testReply('550 the purple one', '--config', folder), { stdout: /suppressed by the second such answer/ })
  writeFileSync(file, `rules:\n  - ${JSON.stringify({ ...rule, match: '(' })}\n`)
  t.match(await testReply('550 x', '--config', folder), { code: 78, stdout: '', stderr: /own\.yaml:2:\d+: rules\[0\]/ })
  writeFileSync(file, 'rules: [\n')
  t.match(await testReply('550 x', '--config', folder), { code: 78, stdout: '', stderr: /own\.yaml/ })
  writeFileSync(file, `rules:\n  - ${JSON.stringify(rule)}\n`)
  writeFileSync(join(folder, 'bounces.d', 'own.yaml'), '')
  t.match(await testReply('550 x', '--config', folder), { code: 0, stderr: /own\.yaml.* is not read/ })
  t.match(await testReply('hello'), { code: 64, stderr: /"hello" is no SMTP reply/ })
  t.match(await testReply('550 x', '--stage', 'later'), { code: 64 })
  t.match(await testReply('550 x', '--provider', 'gogle'), { code: 64, stderr: /no provider "gogle"; write google/ })
  t.match(
    await sternpost(['config', 'test-reply', '550 x'], { STERNPOST_CONFIG: '' }),
    { code: 0 },
    'the shipped files',
  )
})
