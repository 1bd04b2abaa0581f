/**
 * The same mail to Debian's Postfix, Exim and OpenSMTPD and to a scripted server, in every way that servers differ:
 * each cell of the table has its right outcome. Where a server cannot be set up so, the scripted one stands for it.
 */
import { createTransport } from 'nodemailer'
import t, { type Test } from 'tap'
import { MINUTE } from '../../src/base/clock.ts'
import type { MessageView } from '../../src/store/records/lookup-records.ts'
import {
  addressOf,
  LACKING,
  SERVERS,
  SMALL_BYTES,
  startInteropServers,
  type Door,
  type InteropServers,
  type ServerName,
} from '../support/interop-servers.ts'
import { missingForMailDomains, startMailDomains } from '../support/mail-domains.ts'
import { missingPrograms } from '../support/programs.ts'
import { startRunningAppliance, type RunningAppliance } from '../support/running-appliance.ts'
import { freePort } from '../support/serve-process.ts'
import { SENDING_DOMAIN, TWO_IPS } from '../support/two-ips.ts'
import { missingMailServers } from '../support/unpacked-servers.ts'
import { until } from '../support/until.ts'

interface Column {
  name: string
  door: Door
  /** What is to come of it; the words of `outcomeOf`. */
  expected: string
  /** Where a server rightly does otherwise. */
  differs?: Partial<Record<ServerName, string>>
  localPart?: string
  protection?: 'dane' | 'sts'
  isSubmitted?: boolean
  attachmentBytes?: number
}

// Little of it would be escaped, so it does not become base64.
const TEXT = 'Grüße aus Köln, und bis bald wieder hier am Rhein'
const PLAIN = 'delivered, plain text'
const COLUMNS: readonly Column[] = [
  { name: 'plain', door: 'plain', expected: PLAIN },
  { name: 'STARTTLS', door: 'tls', expected: 'delivered, TLSv1.3 verified' },
  { name: 'DANE', door: 'tls', expected: 'delivered, TLSv1.3 verified by dane', protection: 'dane' },
  { name: 'MTA-STS enforce', door: 'tls', expected: 'delivered, TLSv1.3 verified by sts', protection: 'sts' },
  {
    name: 'SMTPUTF8',
    door: 'plain',
    expected: `${PLAIN}, SMTPUTF8`,
    localPart: 'jürgen',
    // It does not announce SMTPUTF8.
    differs: { opensmtpd: 'bounced 5.6.7 block before MAIL' },
  },
  { name: '8-bit', door: 'plain', expected: `${PLAIN}, 8BITMIME, arrived as 8 bit`, isSubmitted: true },
  { name: 'no 8BITMIME', door: 'no-8bitmime', expected: `${PLAIN}, arrived as 7 bit`, isSubmitted: true },
  { name: 'no PIPELINING', door: 'no-pipelining', expected: PLAIN },
  { name: 'SIZE', door: 'small', expected: 'bounced 5.3.4 soft before MAIL', attachmentBytes: SMALL_BYTES },
  { name: 'greylist', door: 'plain', expected: `deferred 451, same IP: ${PLAIN}`, localPart: 'grey' },
  { name: '421', door: 'plain', expected: `deferred 421: ${PLAIN}`, localPart: 'busy' },
  { name: 'half-close', door: 'half-close', expected: `${PLAIN}, closed` },
  { name: 'half-close early', door: 'early-close', expected: `path-failed: ${PLAIN}, closed` },
  { name: 'no QUIT', door: 'no-quit', expected: `${PLAIN}, closed` },
]
/** Servers that take one command at a time wherever they are asked. */
const NEVER_PIPELINING: readonly ServerName[] = ['opensmtpd']

interface Cell {
  column: Column
  server: ServerName
  /** Who answers: the server itself, or the scripted one in its place. */
  by: ServerName
  domain: string
  recipient: string
}

const CELLS: Cell[] = SERVERS.flatMap((server) =>
  COLUMNS.map((column): Cell => {
    const zone = column.protection === 'dane' ? 'signed.test' : 'open.test'
    const domain = `${column.name.toLowerCase().replaceAll(' ', '-')}-${server}.${zone}`
    const by = LACKING[server].includes(column.door) ? 'scripted' : server
    return { column, server, by, domain, recipient: `${column.localPart ?? 'ada'}@${domain}` }
  }),
)

const skip = missingPrograms({ postfix: ['postfix'] }) || missingMailServers() || missingForMailDomains()

t.setTimeout(600_000)

t.test('every cell has the right outcome', { skip }, async (t) => {
  const { appliance, servers, submissionPort } = await startWorld(t)
  await sendAll(appliance, submissionPort)
  const explain = async (error: Error): Promise<never> => {
    for (const { message_id: id, recipient, state } of await list(appliance)) {
      if (state === 'delivered' || state === 'bounced') continue
      t.comment(recipient, state, JSON.stringify((await appliance.api.get(`/email/${id}/transcript`)).body['data']))
    }
    for (const server of SERVERS) t.comment(servers.log(server).slice(-2_000))
    throw error
  }
  await until(
    'every message has had its try',
    () => areAll(appliance, ['delivered', 'bounced', 'deferred']),
    120_000,
  ).catch(explain)
  appliance.clock.leap(6 * MINUTE)
  await until('what was put off has come', () => areAll(appliance, ['delivered', 'bounced']), 120_000).catch(explain)
  await until('no connection is left open', () =>
    [...servers.proxies.values()].every(({ connections }) => connections.every(({ isClosed }) => isClosed)),
  )
  const listed = await list(appliance)
  for (const column of COLUMNS) {
    for (const cell of CELLS.filter((cell) => cell.column === column)) {
      const id = listed.find(({ recipient }) => recipient === cell.recipient)?.message_id ?? ''
      const outcome = await outcomeOf(cell, id, { appliance, servers })
      const expected = column.differs?.[cell.by] ?? column.expected
      t.equal(outcome, expected, `${column.name}: ${cell.server}`)
      const stand = cell.by === cell.server ? '' : ` (by the ${cell.by} server)`
      t.comment(`| ${column.name.padEnd(16)} | ${cell.server.padEnd(9)} | ${outcome}${stand}`)
    }
  }
  t.same((await appliance.api.get('/suppressions')).body['data'], [], 'nobody is suppressed for any of it')
})

interface World {
  appliance: RunningAppliance
  servers: InteropServers
  submissionPort: number
}

async function startWorld(t: Test): Promise<World> {
  const [port, submissionPort] = [await freePort(addressOf('postfix', 'plain')), await freePort()]
  const domains = await startMailDomains({
    port,
    policyAddress: '127.0.25.1',
    domains: CELLS.map(({ domain, by, column }) => ({
      name: domain,
      address: addressOf(by, column.door),
      hasPolicy: column.protection === 'sts',
    })),
  })
  t.teardown(() => domains.close())
  const servers = await startInteropServers({ port, certificate: domains.certificate })
  t.teardown(() => servers.close())
  const appliance = await startRunningAppliance({
    dnsServer: domains.dnsServer,
    deliveryPort: port,
    pools: TWO_IPS,
    settings: {
      ...domains.settings,
      listen: { submission: [{ address: '127.0.0.1', port: submissionPort, tls: 'none' }] },
      delivery: { threads: 1, timeouts: { quit: '1s' } },
    },
    files: { 'providers.d/10-idle.yaml': { default: { idle: '1s' } } },
  })
  t.teardown(() => appliance.stop())
  await domains.prepareSender(appliance.api)
  return { appliance, servers, submissionPort }
}

async function sendAll({ api, apiKey }: RunningAppliance, submissionPort: number): Promise<void> {
  const auth = { user: 'apikey', pass: apiKey }
  const transport = createTransport({ host: '127.0.0.1', port: submissionPort, ignoreTLS: true, auth })
  const from = `orders@${SENDING_DOMAIN}`
  for (const {
    recipient,
    column: { attachmentBytes = 0, isSubmitted },
  } of CELLS) {
    if (isSubmitted === true) {
      const head = `From: ${from}\r\nTo: ${recipient}\r\nSubject: Order\r\nMIME-Version: 1.0\r\n`
      const type = 'Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n'
      await transport.sendMail({ envelope: { from, to: recipient }, raw: `${head}${type}\r\n${TEXT}\r\n` })
      continue
    }
    const content = Buffer.alloc(attachmentBytes, 'x').toString('base64')
    const attachments = attachmentBytes === 0 ? {} : { attachments: [{ name: 'large.txt', content }] }
    await api.send({ to: recipient, from, subject: 'Order', text: TEXT, ...attachments })
  }
  transport.close()
}

interface Listed {
  message_id: string
  recipient: string
  state: string
}

async function list({ api }: RunningAppliance): Promise<Listed[]> {
  return (await api.get('/email?limit=100')).body['data'] as Listed[]
}

async function areAll(appliance: RunningAppliance, states: readonly string[]): Promise<boolean> {
  const listed = await list(appliance)
  return listed.length === CELLS.length && listed.every(({ state }) => states.includes(state))
}

async function outcomeOf(cell: Cell, id: string, world: Pick<World, 'appliance' | 'servers'>): Promise<string> {
  const { appliance, servers } = world
  const view = await appliance.parts.store.lookupMessage(id, appliance.clock.now())
  const { body } = await appliance.api.get(`/email/${id}/transcript`)
  const dialogues = (body['data'] as { dialogue: string | null }[]).map(({ dialogue }) => dialogue ?? '')
  const dialogue = dialogues.at(-1) ?? ''
  if (view === null) return 'nothing'
  const { state, bounce, attempts } = view
  const before = attempts.slice(0, -1).map(({ reply, result }) => `${result}${/^ \d{3}/.exec(` ${reply}`)?.[0] ?? ''}`)
  const isSameIp = new Set(attempts.map(({ ip }) => ip)).size === 1
  const putOff = before.map((text) => `${text}${isGreylisted(cell) && isSameIp ? ', same IP' : ''}: `).join('')
  if (bounce !== null) {
    return `${putOff}${state} ${bounce.code} ${bounce.type}${/> MAIL/.test(dialogue) ? '' : ' before MAIL'}`
  }
  const words = [state, securityOf(view), ...extensionsOf(dialogue), ...(await arrivalOf(cell, servers))]
  return `${putOff}${words.join(', ')}${orderOf(cell, dialogue)}${view.isPossibleDuplicate ? ', uncertain' : ''}`
}

function isGreylisted({ column }: Cell): boolean {
  return column.localPart === 'grey'
}

function securityOf({ attempts }: MessageView): string {
  const tls = attempts.at(-1)?.tls
  if (tls == null) return 'plain text'
  const [policy] = tls.policy.split(' ')
  return `${tls.protocol} ${tls.isVerified ? 'verified' : 'not verified'}${policy === 'none' ? '' : ` by ${policy}`}`
}

function extensionsOf(dialogue: string): string[] {
  const command = /^> MAIL FROM.*$/m.exec(dialogue)?.[0] ?? ''
  return ['SMTPUTF8', '8BITMIME'].filter((extension) => command.includes(extension))
}

/** What the server made of it, where that matters. */
async function arrivalOf({ column, by, server, recipient }: Cell, servers: InteropServers): Promise<string[]> {
  const words: string[] = []
  const mail = await until(`the mail to ${recipient} has arrived`, () => mailsTo(recipient, servers.mails(by))[0])
  const count = mailsTo(recipient, servers.mails(by)).length
  if (count > 1) words.push(`${count} times`)
  const connections = servers.proxies.get(`${column.door} ${server}`)?.connections
  if (connections !== undefined) words.push(connections.every(({ isClosed }) => isClosed) ? 'closed' : 'still open')
  if (column.isSubmitted !== true) return words
  if (mail.includes(TEXT)) return [...words, 'arrived as 8 bit']
  return [...words, mail.includes('Gr=C3=BC=C3=9Fe aus K=C3=B6ln') ? 'arrived as 7 bit' : 'arrived damaged']
}

function mailsTo(recipient: string, mails: readonly Buffer[]): Buffer[] {
  return mails.filter((mail) => mail.includes(`\nTo: ${recipient}\r`) || mail.includes(`\nTo: ${recipient}\n`))
}

/** Several commands at once where the server takes them, and one at a time where it does not. */
function orderOf({ column, by }: Cell, dialogue: string): string {
  const takesSeveral = column.door !== 'no-pipelining' && !NEVER_PIPELINING.includes(by)
  // MAIL and RCPT without a reply between them.
  const isPipelined = /^> MAIL.*\n> RCPT/m.test(dialogue)
  if (isPipelined === takesSeveral) return ''
  return isPipelined ? ', pipelined' : ', one command at a time'
}
