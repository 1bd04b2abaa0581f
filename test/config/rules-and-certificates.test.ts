/** Rules of providers.yaml and bounces.yaml as they are checked at load, warnings between files, certificates. */
import { X509Certificate } from 'node:crypto'
import { chmodSync, copyFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { DAY } from '../../src/base/clock.ts'
import { createTrial, patternProblem } from '../../src/config/checks/pattern-safety.ts'
import { createClassifier } from '../../src/mail/reply/classify-reply.ts'
import { readSmtpReply } from '../../src/mail/reply/smtp-reply.ts'
import { FIXTURES, folderWith, load, mistakesIn, overrides, SHIPPED } from './folders.ts'

/** What is said about a bounces.yaml or providers.yaml with these rules. */
function said(t: Parameters<typeof overrides>[0], file: string, rules: string[]): string[] {
  const settings = overrides(t)
  const list = file === 'bounces' ? 'rules' : 'replies'
  const folder = folderWith(t, { [`${file}.d/10-test.yaml`]: `${list}:\n${rules.join('\n')}\n` })
  return mistakesIn({ folder, overrides: settings, neededSecrets: 'none' })
    .filter((mistake) => mistake.file.startsWith(join(folder, `${file}.d`)) || mistake.path.startsWith('rules'))
    .map(({ line, column, severity, message }) => `${line}:${column}: ${severity}: ${message}`)
}

const BOUNCE = (more: string): string => `  - { id: a, match: 'qqq', category: policy, example: '550 qqq'${more} }`

t.test('a rule must compile, be safe, be fast and match its example', async (t) => {
  const rule = (match: string): string[] => said(t, 'bounces', [BOUNCE('').replace("'qqq'", `'${match}'`)])
  t.match(rule('(qqq'), [/^2:21: error: Invalid regular expression: .*Unterminated group/])
  t.strictSame(rule('(q+)+'), ['2:21: error: a repetition inside a repetition is not taken'])
  t.strictSame(rule('(q)q\\1'), ['2:21: error: a backreference is not taken'])
  t.strictSame(rule('zzz'), ['2:55: error: the rule does not match its own example'])
  t.match(rule('.*.*.*.*='), ['2:21: error: takes more than 50 ms on hostile text; make it simpler'])
  t.strictSame(rule('qqq'), [])
})

t.test('ids are there once, providers and categories exist, actions are whole', async (t) => {
  t.strictSame(said(t, 'bounces', [BOUNCE(''), BOUNCE(', provider: gogle').replaceAll('qqq', 'zzz')]), [
    '3:11: error: "a" is the id of an earlier rule (bounces.d/10-test.yaml:2:5)',
    '3:76: error: no provider "gogle"; did you mean "google"?',
  ])
  const misspelt = said(t, 'bounces', [BOUNCE('').replace('policy', 'polcy')])
  t.match(misspelt, ['2:38: error: "polcy" is not known here; did you mean policy?'])
  const reply = (more: string): string[] =>
    said(t, 'providers', [`  - { id: a, match: 'qqq', example: '450 qqq', for: 1h, ${more} }`])
  t.strictSame(reply('do: limit'), ['2:61: error: limit needs one of rate, connections, messages_per_connection'])
  t.strictSame(reply('do: suspend, rate: 1/minute'), ['2:76: error: has no meaning with do: suspend'])
  t.strictSame(reply('do: suspend, when: 3'), ['2:76: error: 3 needs a time; write for example 3/1h'])
  t.strictSame(reply('do: suspend, when: 3/1h'), [])
})

t.test('a rule whose example an earlier one catches is a warning, unless it may match too', async (t) => {
  const pair = (more: string, first = ''): string[] =>
    said(t, 'bounces', [BOUNCE(first), BOUNCE(more).replace('id: a', 'id: b')])
  t.strictSame(pair(''), ['3:55: warning: the rule "a" before it catches this example first'])
  t.strictSame(pair('', ', class: 4'), [], 'another class does not catch it')
  t.strictSame(pair('', ', stage: [mail]'), [], 'one stage does not catch all of them')
  t.strictSame(pair(', provider: google'), [], 'rules of a provider are tried before the general ones')
  t.strictSame(pair('', ', weak: true'), ['2:55: warning: the rule "b" before it catches this example first'])
  const reply = (more: string): string => `  - { id: a, match: qqq, example: 450 qqq, for: 1h, do: suspend${more} }`
  t.strictSame(said(t, 'providers', [reply(''), reply(', also: true').replace('id: a', 'id: b')]), [])
})

t.test('expressions are read as JavaScript reads them', async (t) => {
  const repeated = 'a repetition inside a repetition is not taken'
  for (const pattern of ['(a+)+', '((a*)b)*', '(a|b+){2,}', '(?:a{2,})*', '(?<n>a+)*', '(?=(a+)*)', '(a+?)*?']) {
    t.equal(patternProblem(pattern), repeated, pattern)
  }
  const safe = [
    '(a+)?',
    '[(a+)]*',
    '\\(a+\\)*',
    '(a{3})+',
    '(?:\\d{1,3}\\.){3}',
    '\\p{L}+',
    '\\u{61}*',
    'a+b+',
    '[^\\]+]*',
  ]
  for (const pattern of safe) {
    t.equal(patternProblem(pattern), undefined, pattern)
  }
  t.equal(patternProblem('(?<n>a)\\k<n>'), 'a backreference is not taken')
})

t.test('hostile lines find slow expressions and pass good ones', async (t) => {
  const isFast = createTrial()
  t.notOk(isFast('(mailbox.*){1}.*.*.*full!', 'mailbox full!'))
  const endless: [string, string][] = [
    ['^(z|z)*y$', 'zy'],
    ['(zx|zx)*y', 'zxy'],
    ['(a|b|ab)*c', 'c'],
    ['^foo z*z*z*z*z*y', 'foo zy'],
  ]
  for (const [pattern, example] of endless) t.notOk(isFast(pattern, example), pattern)
  t.ok(isFast('mailbox.{0,60}full', 'mailbox full'))
})

t.test('texts of servers everywhere get the category that a person would pick', async (t) => {
  const { bounces } = load({ folder: SHIPPED, overrides: overrides(t) })
  const classify = createClassifier(bounces.rules)
  const expected: [reply: string, category: string][] = [
    ['550 5.1.1 <a@example.org>: Recipient address rejected: User unknown; blocked using zen.example.org', 'ip_block'],
    ['450 4.2.1 The user you are trying to contact is receiving email at a rate that prevents more', 'rate'],
    ['550 5.7.1 very low reputation of the sending domain', 'domain_block'],
    ['550 5.1.8 <a@example.net>: Sender address rejected: Domain not found', 'sender_refused'],
    ['550 5.4.1 Recipient address rejected: Access denied. [AM1.prod.protection.outlook.com]', 'invalid_recipient'],
    ["554 delivery error: dd This user doesn't have a yahoo.com account (a@yahoo.com) [0]", 'invalid_recipient'],
    ['550 5.1.1 Utilisateur inconnu', 'invalid_recipient'],
    ['552 5.2.2 Postfach ist voll', 'mailbox_full'],
    ['530 5.7.0 Must issue a STARTTLS command first', 'tls'],
    ['503 bad sequence of commands', 'protocol'],
    ['550 mailbox unavailable', 'invalid_recipient'],
    ['451 something went wrong', 'temporary'],
    ['550 something went wrong', 'unknown'],
    ['550 Recipient a@example.org does not exist', 'invalid_recipient'],
    ['550 Пользователь не найден', 'invalid_recipient'],
    ['550 用户不存在', 'invalid_recipient'],
    ['552 5.2.2 Das Postfach des Empfängers ist voll', 'mailbox_full'],
    ['550 5.4.310 DNS domain example.invalid does not exist', 'bad_domain'],
    ['550 5.4.4 Host not found. Name service error for name=a.example type=A: Host not found', 'bad_domain'],
    ['554 Client host [mta1.example.net] blocked by bl.barracudanetworks.com', 'ip_block'],
    ['550 5.7.1 Service unavailable, Client host [203.0.113.9] blocked', 'ip_block'],
    ['554 5.7.1 Your IP 2001:db8::9 is temporarily blocked', 'ip_block'],
    ['550 Mail content denied', 'spam_content'],
    ['552 Mailbox quota exceeded', 'mailbox_full'],
    ['550 daily sending quota exceeded', 'rate'],
    ['452 4.3.1 Insufficient disk space', 'system_error'],
  ]
  for (const [text, category] of expected) {
    const reply = readSmtpReply(text)
    t.equal(reply && classify(reply, 'rcpt', null).category, category, text)
  }
})

t.test('what is said of the sender, of our host or of the message calls no recipient dead', async (t) => {
  const { bounces } = load({ folder: SHIPPED, overrides: overrides(t) })
  const classify = createClassifier(bounces.rules)
  const texts = [
    '550 5.7.1 <mta1.example.net>: Helo command rejected: Host not found',
    '550 Sender domain does not exist',
    '550 5.1.8 Sender domain has no MX or A record',
    '550 Your domain does not exist',
    '550 MAIL FROM domain has no MX',
    '550 5.7.1 sender address unknown',
    '550 From address unknown',
    '550 5.1.7 Invalid address of sender',
    '550 5.7.0 sender mailbox does not exist',
    '550 5.7.1 The sender account has been disabled',
    '550 5.7.1 Your account is disabled',
    '550 Header From address does not exist',
    '535 authentication failed: account disabled',
    '550 5.7.1 Recipient address rejected: SPF domain not found',
    '550 5.5.4 Invalid address in From header',
    '550 this server does not accept mail from dynamic addresses',
    '550 a@example.org: delivery time expired',
  ]
  for (const text of texts) {
    for (const stage of ['rcpt', 'dot', 'dsn'] as const) {
      const reply = readSmtpReply(text)
      t.equal(reply && classify(reply, stage, null).suppress, 'never', `${stage}: ${text}`)
    }
  }
})

interface CorpusReply {
  text: string
  smtp_code: string | null
  status: string | null
}

const CORPUS = new URL('../../../shared/corpora/smtp-replies/replies.jsonl', import.meta.url)

t.test(
  'of the replies that others collected, at most one in ten has no category',
  { skip: existsSync(CORPUS) ? false : 'the corpora are not there' },
  async (t) => {
    const { bounces } = load({ folder: SHIPPED, overrides: overrides(t) })
    const classify = createClassifier(bounces.rules)
    const lines = readFileSync(CORPUS, 'utf8').trim().split('\n')
    const open = lines.filter((line) => {
      const { text, smtp_code, status }: CorpusReply = JSON.parse(line)
      const code = smtp_code ?? (status?.startsWith('4') === true ? '450' : '550')
      // A reply code at the start, as a server sends it.
      const reply = readSmtpReply(/^[45]\d\d[ -]/.test(text) ? text : `${code} ${status ?? ''} ${text}`)
      const { category, rule } =
        reply === undefined ? { category: 'unknown', rule: null } : classify(reply, 'rcpt', null)
      return category === 'unknown' || (category === 'temporary' && rule === null)
    })
    t.comment(`${open.length} of ${lines.length} without a category`)
    t.ok(open.length <= lines.length / 10, `${open.length} of ${lines.length}`)
  },
)

t.test('certificates must be there, fit their key, and keep it secret', async (t) => {
  const { 'listen.http': _, ...settings } = overrides(t)
  const door = [{ address: '127.0.0.1', port: 8443, tls: true, serve: ['api'] }]
  const folder = t.testdir({})
  const key = (name: string, mode: number): string => {
    const file = join(folder, `${mode}-${name}`)
    copyFileSync(join(FIXTURES, 'tls', name), file)
    chmodSync(file, mode)
    return file
  }
  const cert_file = join(FIXTURES, 'tls', 'test-cert.pem')
  const said = (certificate: { cert_file: string; key_file: string }, now?: number, acme: object | null = null) =>
    mistakesIn({
      folder: SHIPPED,
      neededSecrets: 'none',
      ...(now === undefined ? {} : { now }),
      overrides: { ...settings, 'listen.http': door, 'tls.certificates': [certificate], 'tls.acme': acme },
    })
      .filter(({ path }) => path.startsWith('tls'))
      .map(({ path, severity, message }) => `${path}: ${severity}: ${message}`)
  const selfSigned = 'tls.certificates[0].cert_file: warning: the certificate is self-signed: clients will not trust it'
  t.strictSame(said({ cert_file, key_file: key('test-key.pem', 0o640) }), [selfSigned])
  t.match(said({ cert_file, key_file: key('test-key.pem', 0o640) }, undefined, { directory: 'letsencrypt' }), [
    /cert_file: warning: the certificate is self-signed: it is shown in place of one by tls\.acme .*; take it out of tls/,
  ])
  t.match(said({ cert_file, key_file: key('test-key.pem', 0o600) }, Date.UTC(2300, 0)), [
    /cert_file: warning: the certificate expired on /,
    selfSigned,
  ])
  const end = new X509Certificate(readFileSync(cert_file)).validToDate.getTime()
  t.match(said({ cert_file, key_file: key('test-key.pem', 0o600) }, end - 13 * DAY), [
    /cert_file: warning: the certificate ends on .*: renew it/,
    selfSigned,
  ])
  t.strictSame(said({ cert_file, key_file: key('test-key.pem', 0o600) }, end - 15 * DAY), [selfSigned])
  t.match(said({ cert_file, key_file: key('test-key.pem', 0o644) }), [
    /key_file: error: others can use .*; run chmod/,
    selfSigned,
  ])
  t.match(said({ cert_file, key_file: key('other-key.pem', 0o600) }), [
    selfSigned,
    /key_file: error: this key does not belong/,
  ])
  const der = join(folder, 'der')
  writeFileSync(der, new X509Certificate(readFileSync(cert_file)).raw)
  const cutChain = join(folder, 'cut-chain')
  writeFileSync(cutChain, `${readFileSync(cert_file, 'utf8')}-----BEGIN CERTIFICATE-----\nMIIB\n`)
  for (const file of [der, cutChain]) {
    const [found] = said({ cert_file: file, key_file: key('test-key.pem', 0o600) })
    t.match(found, /cert_file: error: cannot be used: .*PEM/, 'the doors would not open with it')
  }
  t.match(said({ cert_file: '/nowhere/a', key_file: cert_file }), [
    /cert_file: error: not a certificate: ENOENT/,
    /key_file: error: not a private key: /,
  ])
})

t.test('switches for tests and weak pools are warnings', async (t) => {
  const switches = { 'delivery.port': 2525, 'webhooks.allow_http': true, 'webhooks.allow_private_addresses': true }
  const settings = { ...overrides(t), ...switches }
  const pools = [
    'version: 1',
    'default_pool: a',
    'pools:',
    '  a: { ips: [{ address: 198.51.100.1, hostname: m.example }], limits: { google: { connections: 9 } } }',
    '  b: { ips: [{ address: 198.51.100.2, hostname: m.example, curve: fast }] }',
    '  c: {}',
    '  d: { ips: [{ address: 198.51.100.3, hostname: n.example, source: 198.51.100.1 }] }',
  ].join('\n')
  const folder = folderWith(t, { 'pools.yaml': pools })
  const warnings = mistakesIn({ folder, overrides: settings, neededSecrets: 'none', offline: false })
  const paths = warnings.map(({ path }) => path).filter((path) => path !== '' && path !== 'secrets.master_key')
  t.strictSame(paths, [
    'pools.a',
    'pools.a.ips[0].address',
    'pools.a.limits.google.connections',
    'pools.b.ips[0].address',
    'pools.b.ips[0].hostname',
    'pools.c',
    'pools.d.ips[0].address',
    'pools.d.ips[0].address',
    'listen.inbound',
    'curves.fast.stages[4]',
    'webhooks.allow_http',
    'webhooks.allow_private_addresses',
    'delivery.port',
    'delivery.allow_private_addresses',
  ])
  const shared = 'mail of 198.51.100.3 would leave as that of 198.51.100.1: both have the source 198.51.100.1'
  t.ok(warnings.some(({ message }) => message === shared))
})
