/**
 * The operator hears of a problem once, by mail and by webhook, and once more when it is solved.
 */
import t from 'tap'
import type { HealthFinding } from '../../src/health/checks/check.ts'
import { healthChange } from '../../src/health/operator-alert.ts'
import { alertSubject, alertText } from '../../src/health/operator-alert.ts'
import { prepareSender, startApplianceZone, TWO_IPS } from '../support/two-ips.ts'
import { startKeepingSink } from '../support/keeping-sink.ts'
import { startRunningAppliance } from '../support/running-appliance.ts'
import { until } from '../support/until.ts'
import { webhookReceiver } from '../support/webhook-receiver.ts'

const LISTED = '11.0.0.127.zen.spamhaus.org'

function finding(fields: Partial<HealthFinding>): HealthFinding {
  return {
    check: 'ptr',
    subject: '203.0.113.10',
    family: 4,
    result: 'fail',
    seen: 'there is none',
    why: 'It matters.',
    fix: 'set it',
    ...fields,
  }
}

t.test('what is told follows from what was told and from the last two runs', async (t) => {
  const failure = finding({})
  const warning = finding({ check: 'tls', result: 'warn', fix: 'renew it' })
  const first = healthChange({}, [], [failure, warning])
  t.same(first.problems, [failure], 'a failure at once, a warning not yet')
  const second = healthChange(first.told, [failure, warning], [{ ...failure, seen: 'other words' }, warning])
  t.same(second.problems, [warning], 'the warning of two runs, and nothing twice')
  const third = healthChange(second.told, [failure, warning], [failure, warning])
  t.same([third.problems, third.solved], [[], []])
  const silent = healthChange(second.told, [], [finding({ result: 'skip' }), warning])
  t.same([silent.problems, silent.solved], [[], []], 'what was not looked at is not solved')
  const worse = healthChange(second.told, [], [failure, finding({ check: 'tls', fix: 'renew it' })])
  t.match(worse, { problems: [{ check: 'tls', result: 'fail' }], solved: [] }, 'worse is news, and solves nothing')
  const gone = healthChange(second.told, [], [finding({ result: 'ok' }), warning])
  t.match(gone, { problems: [], solved: [{ check: 'ptr' }] })
  t.same(Object.keys(gone.told).length, 1)
  const removed = healthChange(second.told, [], [warning])
  t.match(removed.solved, [{ check: 'ptr' }], 'an IP that is not there any more has no problem')
  const two = healthChange({}, [], [finding({ fix: 'list one' }), finding({ fix: 'list two' })])
  t.equal(two.problems.length, 2, 'two lists are two problems of one IP')
  const back = healthChange(gone.told, [], [failure, warning])
  t.match(back.problems, [{ check: 'ptr' }], 'and it is news when it comes back')
})

t.test('the words of an alert', async (t) => {
  const alert = {
    at: 0,
    hostname: 'mail.sternpost.test',
    problems: [finding({})],
    solved: [{ check: 'tls', subject: null, seen: 'it ends soon' }],
  }
  t.equal(alertSubject(alert), 'Sternpost mail.sternpost.test: 1 problem, 1 solved')
  t.match(alertText(alert), /FAILURE {2}ptr 203\.0\.113\.10: there is none\n {2}It matters\.\n {2}Fix: set it/)
  t.match(alertText(alert), /SOLVED {3}tls: it was: it ends soon/)
})

t.test('a running server tells its operator', async (t) => {
  const sink = await startKeepingSink()
  t.teardown(() => sink.close())
  const zone = await startApplianceZone('127.0.0.1')
  t.teardown(() => zone.close())
  const receiver = await webhookReceiver(500, 200)
  t.teardown(() => receiver.close())
  const appliance = await startRunningAppliance({
    dnsServer: zone.server,
    deliveryPort: sink.port,
    pools: TWO_IPS,
    settings: {
      operator: { email: 'ops@dest.test', webhook: `${receiver.url}/alerts` },
      health: { blocklists: ['zen.spamhaus.org'] },
    },
  })
  t.teardown(() => appliance.stop())
  await prepareSender({ baseUrl: appliance.baseUrl, createKey: async () => appliance.apiKey }, zone)
  zone.set(LISTED, { A: ['127.0.0.2'] })
  const run = async (): Promise<number> => (await appliance.api.post('/admin/checks', {})).status
  const mails = (): string[] => sink.mails.map(({ bytes }) => textOf(bytes))
  const posts = (): string[] => receiver.requests.map(({ body }) => body.toString())

  t.equal(await run(), 200)
  await until('the mail is there', () => mails().length === 1)
  t.match(mails()[0], /FAILURE {2}blocklist 127\.0\.0\.11: is listed by zen\.spamhaus\.org/)
  t.match(sink.mails[0]?.bytes.toString(), /^From: "Sternpost" <postmaster@acme\.test>/m, 'of a domain that may send')
  t.equal(posts().length, 1, 'the webhook refused it')
  await run()
  t.equal(posts().length, 2, 'so it was tried again')
  const posted = JSON.parse(posts()[1] ?? '') as { problems: HealthFinding[] }
  t.match(posted, { kind: 'health', hostname: 'mail.sternpost.test' })
  t.ok(posted.problems.some(({ check, subject }) => check === 'blocklist' && subject === '127.0.0.11'))
  const told = mails().filter((text) => text.includes('FAILURE  blocklist')).length
  await run()
  await run()
  t.equal(mails().filter((text) => text.includes('FAILURE  blocklist')).length, told, 'nothing is told twice')
  zone.set(LISTED, undefined)
  await run()
  await until('it is solved', () => mails().some((text) => text.includes('SOLVED   blocklist 127.0.0.11')))
  t.match(appliance.log.join('\n'), /"check":"blocklist".*"from":"fail","to":"ok".*"check changed"/)
  t.match(await appliance.parts.metrics.text(), /sternpost_health_check_status\{check="blocklist"\} 0/)

  // One refusal is not to make an operator deaf for ever.
  t.equal((await appliance.api.post('/suppressions', { email: 'ops@dest.test' })).status, 201)
  zone.set(LISTED, { A: ['127.0.0.2'] })
  const before = mails().length
  await run()
  await run()
  t.match(appliance.log.join('\n'), /ops@dest\.test is suppressed: sternpost suppression remove ops@dest\.test --yes/)
  t.equal(mails().length, before, 'no mail is made of a mail that could not go')
  t.equal((await appliance.api.delete('/suppressions/ops@dest.test')).status, 200)
  await run()
  await until('told in the end', () => mails().length > before)
  t.match(mails().at(-1), /FAILURE {2}blocklist 127\.0\.0\.11/)

  const last = await appliance.api.get('/admin/checks')
  t.match(last.body, { data: { ran_at: Number, checks: [{ check: 'clock' }] } })
  t.same((await appliance.api.post('/admin/checks', { checks: ['nothing'] })).status, 422)
  t.same((await appliance.api.post('/admin/checks', { checks: ['ptr'], ip: '127.0.0.12' })).status, 200)
})

function textOf(mail: Buffer): string {
  const [, body = ''] = mail.toString('latin1').split('\r\n\r\n')
  return Buffer.from(body, 'base64').toString('utf8')
}
