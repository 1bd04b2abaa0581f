/**
 * What `sternpost domain` prints, and how long it waits: the parts without a server.
 */
import t from 'tap'
import { dnsText } from '../../src/commands/sending/domain-report.ts'
import { domainReport, openRecords } from '../../src/commands/sending/domain-report.ts'
import { localTime, printable, tableText } from '../../src/commands/shared/text.ts'
import { waitUntilVerified } from '../../src/commands/sending/domain.ts'
import type { DomainJson } from '../../src/api/domain.ts'
import { manualClock } from '../support/manual-clock.ts'
import { RSA_VALUE, sampleDomain, sampleRecord, verifiedDomain } from './domain-samples.ts'

t.test('the report says per record what was found, what is wrong and why, in the words of the API', async (t) => {
  const time = localTime(1_795_219_200)
  t.match(time, /^2026-11-2\d \d\d:\d\d$/)
  const lines = domainReport(sampleDomain()).split('\n')
  t.same(lines.slice(0, 6), [
    'acme.com  pending, cannot send',
    '  pool default, return path bounces.acme.com, subdomains no',
    '  tracking t.acme.com: opens',
    `  added ${time}, verified never`,
    `  checked ${localTime(1_795_219_260)}, next check ${localTime(1_795_219_500)}`,
    '',
  ])
  t.same(lines.slice(6, 12), [
    '  dkim, required: failed',
    '    TXT    ps1._domainkey.acme.com',
    `    value  ${RSA_VALUE}`,
    `    found  ${RSA_VALUE.slice(0, 255)}`,
    '    error  the record at ps1._domainkey.acme.com is no DKIM key',
    '    hint   cut at 255 bytes',
  ])
  const text = lines.join('\n')
  t.match(text, '  spf, required, comes with return_path: pending\n')
  t.match(text, '    none   for 203.0.113.10\n')
  const unseen = sampleDomain({ records: [sampleRecord({ evaluated: [{ ip: '192.0.2.1', result: 'temperror' }] })] })
  t.match(domainReport(unseen), '    temperror for 192.0.2.1')
  t.match(text, '  dmarc, recommended: pending\n')
  t.notMatch(domainReport(verifiedDomain()), 'found', 'what is right needs no proof')
  const tracking = { opens: false, clicks: false, domain: 't', tls: 'pending' as const }
  const off = sampleDomain({ tracking, next_check_at: null })
  t.match(domainReport(off), /tracking t: off[\s\S]*next check not planned/)
  const keys = sampleDomain({
    records: [sampleRecord({ role: 'next' }), sampleRecord({ role: 'retiring', retire_at: 1_795_219_200 })],
  })
  t.match(domainReport(keys), '  dkim, next key: pending')
  t.match(domainReport(keys), `  dkim, old key, leave it until ${time}: pending`)
  t.equal(openRecords(sampleDomain()), 'dkim failed, return_path pending, spf pending')
})

t.test('what the DNS holds cannot move a terminal', async (t) => {
  const hostile = '\u001b[2J\u009b2J\r\n\u202eevil\u0000\u007f'
  const shown = domainReport(sampleDomain({ records: [sampleRecord({ found: [hostile], hint: hostile })] }))
  const table = tableText(['A'], [[hostile]], true)
  // Every control character but the line feeds of our own, and what turns the direction of text around.
  for (const text of [shown, table]) t.notMatch(text.replaceAll('\n', ''), /[\p{Cc}\u202e]/u)
  t.match(shown, '\\u001b[2J')
  t.equal(printable('größe "x" 😀'), 'größe "x" 😀')
})

t.test('a table is aligned on a terminal and tab-separated elsewhere', async (t) => {
  const rows = [
    ['a.com', 'verified', ''],
    ['long.example.com', 'x', 'y'],
  ]
  t.equal(
    tableText(['DOMAIN', 'STATUS', 'Z'], rows, true),
    ['DOMAIN            STATUS    Z', 'a.com             verified', 'long.example.com  x         y', ''].join('\n'),
  )
  t.equal(tableText(['DOMAIN', 'STATUS', 'Z'], rows, false), 'a.com\tverified\t\nlong.example.com\tx\ty\n')
  t.equal(tableText(['DOMAIN'], [], true), 'DOMAIN\n')
})

t.test('every format holds what is to be published, and nothing that another record brings along', async (t) => {
  const domain = sampleDomain()
  const rows = dnsText(domain, 'table', false)
    .trimEnd()
    .split('\n')
    .map((line) => line.split('\t'))
  t.same(rows, [
    ['dkim', 'required', 'TXT', 'ps1._domainkey', 'ps1._domainkey.acme.com', '3600', RSA_VALUE],
    ['return_path', 'required', 'CNAME', 'bounces', 'bounces.acme.com', '3600', 'rp.mail.example.net'],
    ['dmarc', 'recommended', 'TXT', '_dmarc', '_dmarc.acme.com', '3600', 'v=DMARC1; p=none'],
  ])
  const listed: unknown = JSON.parse(dnsText(domain, 'json', false))
  t.same(
    listed,
    domain.records.filter(({ purpose }) => purpose !== 'spf'),
  )

  const { posts } = JSON.parse(dnsText(domain, 'cloudflare', false)) as { posts: Record<string, unknown>[] }
  t.same(
    posts.map(({ type, name, content }) => ({ type, name, content })),
    [
      {
        type: 'TXT',
        name: 'ps1._domainkey.acme.com',
        content: `"${RSA_VALUE.slice(0, 255)}" "${RSA_VALUE.slice(255)}"`,
      },
      { type: 'CNAME', name: 'bounces.acme.com', content: 'rp.mail.example.net' },
      { type: 'TXT', name: '_dmarc.acme.com', content: '"v=DMARC1; p=none"' },
    ],
  )
  t.ok(posts.every(({ proxied, ttl }) => proxied === false && ttl === 3_600))

  const terraform = dnsText(domain, 'terraform', false)
  t.match(terraform, `value = "${RSA_VALUE.slice(0, 255)}\\"\\"${RSA_VALUE.slice(255)}"`, 'strings of 255 bytes')
  t.match(terraform, '"return_path bounces" = { type = "CNAME", name = "bounces.acme.com", ttl = 3600, ')
  t.match(terraform, 'resource "aws_route53_record" "sternpost_acme_com" {')
  t.notMatch(terraform, 'spf1')
})

t.test('a value cannot leave its quotes', async (t) => {
  const records = [sampleRecord({ value: 'a"b\\c${d}%{e}', value_chunks: ['a"b\\c${d}%{e}'] })]
  const domain = sampleDomain({ domain: 'x-1.de', records })
  t.match(dnsText(domain, 'terraform', false), 'value = "a\\"b\\\\c$${d}%%{e}"')
  t.match(dnsText(domain, 'terraform', false), 'local.sternpost_x_1_de')
  const { posts } = JSON.parse(dnsText(domain, 'cloudflare', false)) as { posts: { content: string }[] }
  t.equal(posts[0]?.content, '"a\\"b\\\\c${d}%{e}"')
})

interface Waited {
  result: DomainJson
  checks: number
  /** When each further check was announced, since the start. */
  notes: number[]
}

/** The last state of `states` repeats. */
async function wait(states: DomainJson['status'][], mostMilliseconds: number): Promise<Waited> {
  const clock = manualClock(0)
  const notes: number[] = []
  let checks = 0
  let isOver = false
  const result = waitUntilVerified({
    clock,
    mostMilliseconds,
    verify: async () => sampleDomain({ status: states[Math.min(checks++, states.length - 1)] ?? 'pending' }),
    onCheck: () => notes.push(clock.now()),
  }).finally(() => {
    isOver = true
  })
  await clock.advance(0)
  for (let step = 0; !isOver && step < 1_000; step++) await clock.advance(1_000)
  return { result: await result, checks, notes }
}

t.test('--wait checks until the domain is verified or the time is over', async (t) => {
  t.match(await wait(['verified'], 600_000), { checks: 1, notes: [] })
  const later = await wait(['pending', 'pending', 'verified'], 600_000)
  t.match(later, { result: { status: 'verified' }, checks: 3, notes: [0, 15_000] })
  const never = await wait(['pending', 'degraded'], 40_000)
  const expected = { result: { status: 'degraded' }, checks: 4, notes: [0, 15_000, 30_000] }
  t.match(never, expected, 'the last check is at the end')
  t.match(await wait(['suspended', 'verified'], 600_000), { checks: 1, result: { status: 'suspended' } })
  t.match(await wait(['pending'], 0), { checks: 1, notes: [] })
})
