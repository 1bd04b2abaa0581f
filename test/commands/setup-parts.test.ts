/**
 * The parts of `sternpost setup` that take back, and those that leave alone what is not theirs: the files, and the
 * systemd units, which stand in here as a list of what was asked of them.
 */
import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { startAppliance } from '../../src/appliance.ts'
import { createLogger } from '../../src/base/logger.ts'
import { carryOut } from '../../src/commands/setup/carry-out.ts'
import { stageFiles, type SetupFiles } from '../../src/commands/setup/files.ts'
import { finish } from '../../src/commands/setup/finish.ts'
import type { SetupNotes } from '../../src/commands/setup/report.ts'
import type { Systemd } from '../../src/commands/setup/units.ts'
import { loadConfiguration } from '../../src/config/load-configuration.ts'
import { startZone } from '../support/zone.ts'

const SHIPPED_FOLDER = join(import.meta.dirname, '../../config')
const PERMISSIONS = 0o777
const ANSWERS = {
  hostname: 'mail.acme.test',
  operatorEmail: 'ada@acme.test',
  domain: null,
  authority: null,
  ips: [{ address: '127.0.0.11', source: null }],
}

const ENDING = { withConsole: true, waitMilliseconds: 0 }

async function configurationFolder(t: Test): Promise<string> {
  const root = mkdtempSync(join(tmpdir(), 'sternpost-setup-'))
  t.teardown(async () => rmSync(root, { recursive: true, force: true }))
  mkdirSync(join(root, 'data'))
  const zone = await startZone({})
  t.teardown(() => zone.close())
  const folder = join(root, 'etc')
  mkdirSync(join(folder, 'sternpost.d'), { recursive: true })
  writeFileSync(
    join(folder, 'sternpost.d', '10-test.yaml'),
    JSON.stringify({
      data_dir: join(root, 'data'),
      dns: { servers: [zone.server] },
      delivery: { allow_private_addresses: true },
      listen: { http: [], submission: [], inbound: [], metrics: null, admin_socket: join(root, 'admin.sock') },
    }),
  )
  return folder
}

const stage = (folder: string, answers: { hostname?: null } = {}): SetupFiles =>
  stageFiles({ folder, answers: { ...ANSWERS, ...answers }, isWarmed: false })

t.test('the service can read its files whatever the umask, and nobody else', async (t) => {
  const folder = await configurationFolder(t)
  const before = process.umask(0o077)
  t.teardown(async () => void process.umask(before))
  stage(folder).commit()
  const modeOf = (path: string): string => (statSync(join(folder, path)).mode & PERMISSIONS).toString(8)
  t.same(['tls', 'sternpost.yaml', 'pools.yaml', 'master.key', 'tls/fullchain.pem', 'tls/privkey.pem'].map(modeOf), [
    '750',
    '640',
    '640',
    '600',
    '640',
    '640',
  ])
  t.notOk(readFileSync(join(folder, 'sternpost.yaml'), 'utf8').includes('.setup-'), 'it names the places of now')
})

t.test('a file that appears meanwhile is not overwritten, and the others are taken back', async (t) => {
  const folder = await configurationFolder(t)
  const files = stage(folder)
  writeFileSync(join(folder, 'master.key'), 'of somebody else')
  t.throws(() => files.commit(), { code: 'EEXIST' })
  t.same(readdirSync(folder).toSorted(), ['master.key', 'sternpost.d'])
  t.equal(readFileSync(join(folder, 'master.key'), 'utf8'), 'of somebody else')
  rmSync(join(folder, 'master.key'))
  symlinkSync(join(folder, 'elsewhere'), join(folder, 'pools.yaml'))
  t.throws(() => stage(folder).commit(), { code: 'EEXIST' })
  t.same(readdirSync(folder).toSorted(), ['pools.yaml', 'sternpost.d'], 'nor is anything written through a link')
})

t.test('pools are made for a sternpost.yaml of the administrator, with its host name', async (t) => {
  const folder = await configurationFolder(t)
  const own = JSON.stringify({ version: 1, hostname: 'mx.acme.test' })
  writeFileSync(join(folder, 'sternpost.yaml'), own)
  const files = stage(folder, { hostname: null })
  files.commit()
  t.same(files.added, ['pools.yaml', 'master.key'], 'and no certificate, which it does not name')
  t.match(readFileSync(join(folder, 'pools.yaml'), 'utf8'), /hostname: "mx\.acme\.test"/)
  t.equal(readFileSync(join(folder, 'sternpost.yaml'), 'utf8'), own)
})

t.test(
  'data keeps its master key: no other one is made beside it, and one it was made with is not taken back',
  async (t) => {
    const folder = await configurationFolder(t)
    const data = join(folder, '../data')
    const begun = stage(folder)
    begun.commit()
    writeFileSync(join(data, 'sternpost.db'), 'of the server that this run started')
    t.notOk(begun.remove().includes('master.key'))
    t.same(readdirSync(folder).toSorted(), ['master.key', 'sternpost.d'])
    const key = readFileSync(join(folder, 'master.key'))
    rmSync(join(folder, 'master.key'))
    t.throws(() => stage(folder), { exitCode: 78, message: /data has data, and .*master\.key is not there\. Fix: put/ })
    writeFileSync(join(data, 'master.key'), key)
    t.throws(() => stage(folder), { exitCode: 78, message: `Fix: mv ${data}/master.key ${folder}/master.key` })
    t.same(readdirSync(folder), ['sternpost.d'])
    renameSync(join(data, 'master.key'), join(folder, 'master.key'))
    t.notOk(stage(folder).added.includes('master.key'))
  },
)

t.test('a master key of the administrator, elsewhere, serves its data', async (t) => {
  const folder = await configurationFolder(t)
  const [data, file] = [join(folder, '../data'), join(folder, '../key')]
  writeFileSync(join(data, 'sternpost.db'), '')
  writeFileSync(file, Buffer.alloc(32).toString('base64'), { mode: 0o600 })
  writeFileSync(join(folder, 'sternpost.d', '20-key.yaml'), JSON.stringify({ secrets: { master_key: { file } } }))
  const files = stage(folder)
  files.commit()
  t.notOk(files.added.includes('master.key'), 'and no other one is made, which somebody would keep in its place')
  t.notOk(readdirSync(folder).includes('master.key'))
})

t.test('half a certificate is refused', async (t) => {
  const folder = await configurationFolder(t)
  mkdirSync(join(folder, 'tls'))
  writeFileSync(join(folder, 'tls', 'privkey.pem'), 'key')
  t.throws(() => stage(folder), { exitCode: 78, message: /only tls\/privkey\.pem is there/ })
  t.same(readdirSync(folder).toSorted(), ['sternpost.d', 'tls'])
})

interface FakeSystemd extends Systemd {
  asked: string[]
}

/** `on`: what `is-active` and `is-enabled` agree to. `start`: what `enable --now` does. */
function fakeSystemd(on: string[], start: () => Promise<boolean>): FakeSystemd {
  const asked: string[] = []
  return {
    asked,
    answersWithin: 50,
    serves: () => true,
    async run(program, words) {
      const line = [program, ...words.filter((word) => !word.startsWith('sternpost.'))].join(' ')
      asked.push(line)
      const isOn = !line.includes(' is-') || on.includes(words[0] ?? '')
      const isDone = line === 'systemctl enable --now' ? await start() : isOn
      return { isDone, text: program === 'journalctl' ? 'sternpost: port 25 is taken' : 'Job failed' }
    },
  }
}

function listNotes(): SetupNotes & { lines: string[] } {
  const lines: string[] = []
  return { lines, say: (text) => void lines.push(text), sayKey: (_before, key) => void lines.push(key), close() {} }
}

t.test('a server that does not start takes back the files and the units', async (t) => {
  const folder = await configurationFolder(t)
  const [systemd, notes] = [fakeSystemd([], async () => false), listNotes()]
  const work = { folder, files: stage(folder), notes, unheard: [], domain: null, systemd, ending: ENDING }
  await t.rejects(carryOut(work), { exitCode: 1, message: /did not start: Job failed\nsternpost: port 25 is taken/ })
  t.same(readdirSync(folder), ['sternpost.d'], 'nothing is left behind')
  t.match(notes.lines.join('\n'), /took back sternpost\.yaml, pools\.yaml, master\.key/)
  t.match(systemd.asked.at(-1), 'systemctl disable --now')
})

t.test('a server that was on before stays on, though it does not answer', async (t) => {
  const folder = await configurationFolder(t)
  stage(folder).commit()
  const before = readdirSync(folder)
  const running = fakeSystemd(['is-active', 'is-enabled'], async () => true)
  const work = { folder, notes: listNotes(), unheard: [], domain: null, ending: ENDING }
  await t.rejects(carryOut({ ...work, files: stage(folder), systemd: running }), { message: /it does not answer/ })
  t.notMatch(running.asked.join('\n'), /stop|disable/)
  const crashed = fakeSystemd(['is-enabled'], async () => false)
  await t.rejects(carryOut({ ...work, files: stage(folder), systemd: crashed }), { message: /Job failed/ })
  t.match(crashed.asked.at(-1), 'systemctl stop', 'it starts with the machine as before')
  t.same(readdirSync(folder), before, 'and keeps its files')
})

t.test('a server that starts gets its first domain and key', async (t) => {
  const folder = await configurationFolder(t)
  const systemd = fakeSystemd([], async () => {
    const configuration = loadConfiguration({ folder, shippedFolder: SHIPPED_FOLDER, credentialsFolder: folder })
    const appliance = await startAppliance({
      configuration,
      logger: createLogger({ level: 'silent' }),
      onFatal: (reason) => {
        throw reason
      },
    })
    t.teardown(() => appliance.stop())
    return true
  })
  const notes = listNotes()
  const domain = 'acme.test'
  const work = { folder, files: stage(folder), notes, unheard: [], domain, systemd, ending: ENDING }
  const result = await carryOut(work)
  t.match(result, {
    server: 'started',
    domain: { name: 'acme.test', created: true },
    key: /^sk_live_/,
    next: /sternpost domain check acme\.test --wait 10m/,
  })
  t.ok(notes.lines.includes(result.key ?? ''))
  t.match(
    notes.lines.join('\n'),
    /The first mail, once acme\.test is verified[\s\S]+sternpost ip warmup start 127\.0\.0\.11 --config \S+\n[\s\S]+curl --insecure https:\/\/mail\.acme\.test\/v1/,
  )
  t.match(systemd.asked, ['systemctl is-active', 'systemctl is-enabled', 'systemctl reset-failed'])
  t.ok(lstatSync(join(folder, 'master.key')).isFile())
})

t.test('a signal ends what a silent server is asked for, and nothing is said after it', async (t) => {
  const folder = await configurationFolder(t)
  stage(folder).commit()
  const { server: settings } = loadConfiguration({ folder, shippedFolder: SHIPPED_FOLDER, credentialsFolder: folder })
  const socketPath = settings.listen.admin_socket
  const silent = createServer().listen(socketPath)
  t.teardown(() => silent.close())
  const finishing = { server: { kind: 'socket', socketPath } as const, given: {}, settings, key: 'sk', ending: ENDING }
  for (const domain of ['acme.test', null]) {
    const [ending, notes] = [new AbortController(), listNotes()]
    const finished = finish({ ...finishing, domain, notes, ended: ending.signal })
    const [connection] = await once(silent, 'connection')
    ending.abort()
    t.match(await finished, { console: null, domain_status: null, curl: domain === null ? null : /^curl / })
    const told = [...notes.lines]
    connection.destroy()
    // The end of the connection is seen after it, and by then what was asked has failed.
    await new Promise((resolve) => setTimeout(resolve, 50))
    t.same(notes.lines, told, 'the failure that came too late is not told')
  }
})
