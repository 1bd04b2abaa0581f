/**
 * The container image of this tree, run by podman as its README says: the sandbox; a server that delivers from two IPs
 * by low ports without root, and loses nothing when it is killed; clear endings for what is missing. At the full size
 * also, packed as for a release: two builds are equal, and the server that is killed was the first image there ever was.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, chownSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { BUILD_ENVIRONMENT, builtImage, EARLIER_VERSION, HERE } from '../support/built.ts'
import { dataFolder, IMAGE_USER, openContainers, whyNoContainers, type Container } from '../support/containers.ts'
import { startNotingSink } from '../support/noting-sink.ts'
import { startSandboxContainer, untilRunning } from '../support/sandbox-container.ts'
import { freePort, MASTER_KEY } from '../support/serve-process.ts'
import { ROOT } from '../support/source-files.ts'
import { prepareSender, SENDING_DOMAIN, startApplianceZone, TWO_IPS } from '../support/two-ips.ts'
import { until } from '../support/until.ts'

const BUILD = join(ROOT, 'scripts/build-image')
const MOST_BYTES = 110_000_000
const MAILS = 40
/** Ports that take a right. */
const LOW_PORTS: [number, number] = [700, 1_000]
const isFull = process.env['TEST_SCALE'] === 'full'

t.setTimeout(1_200_000)

t.test('the image', { skip: whyNoContainers() }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-image-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const built = isFull ? build(folder, 'built') : builtImage(HERE)
  const { size } = statSync(built)
  t.ok(size <= MOST_BYTES, 'it is small')
  t.comment(`${(size / 1e6).toFixed(0)} MB`)
  if (isFull) t.equal(digestOf(built), digestOf(build(folder, 'again')), 'two builds are equal')
  const containers = await openContainers(t)
  const image = await containers.load(built)
  const earlier = isFull ? await containers.load(buildEarlier(t, folder)) : image
  const { start } = containers

  await t.test('the sandbox takes a mail and shows it', async (t) => {
    const volumes = { '/data': dataFolder(folder, 'sandbox') }
    const { container, ask, deliver } = await startSandboxContainer(containers, image, { words: [], volumes })
    await deliver('From a container')
    t.match(await ask('/dev/inbox'), { data: [{ subject: 'From a container' }] })
    await container.kill('TERM')
    t.equal(container.exitCode(), 0, 'SIGTERM ends it in order')
  })

  await t.test('a server delivers from both IPs, also what was accepted before a kill', async (t) => {
    const sink = await startNotingSink()
    t.teardown(() => sink.close())
    const zone = await startApplianceZone('127.0.0.1')
    t.teardown(() => zone.close())
    const data = dataFolder(folder, 'server')
    const port = await freePort('127.0.0.1', LOW_PORTS)
    configure(data, port, { deliveryPort: sink.port, dnsServer: zone.server })
    const volumes = { '/data': data, '/run/secrets/master.key:ro': masterKey(folder) }
    const baseUrl = `http://127.0.0.1:${port}`
    const serve = async (from: string): Promise<Container> => {
      const server = start(from, { words: ['serve'], volumes })
      await untilRunning(server, () => isHealthy(baseUrl))
      return server
    }
    const first = await serve(earlier)
    await first.exec('/usr/lib/sternpost/is-healthy')
    t.ok(await hasSecurityUpdates(first), 'its packages are those of Debian with its security updates')
    const createKey = async (...scopes: string[]): Promise<string> => {
      const words = scopes.flatMap((scope) => ['--scope', scope])
      return JSON.parse(await first.exec('sternpost', 'key', 'create', '--name', 'test', '--json', ...words)).key
    }
    const api = await prepareSender({ baseUrl, createKey }, zone)
    sink.answerRecipients(() => '451 4.3.0 later')
    const send = async (name: string): Promise<void> => {
      const mail = { from: `shop@${SENDING_DOMAIN}`, to: `${name}@dest.test`, subject: 'Hi', text: 'Hi' }
      t.equal((await api.post('/email/send', mail)).status, 200)
    }
    for (let index = 0; index < MAILS; index += 1) await send(`waits-${index}`)
    await first.kill('KILL')
    sink.answerRecipients(() => undefined)
    const second = await serve(image)
    await second.exec('sternpost', 'queue', 'retry', '--all', '--yes')
    const taken = () => sink.tries.filter(({ reply }) => reply.startsWith('250'))
    await until('all are delivered', () => new Set(taken().map(({ recipient }) => recipient)).size === MAILS)
    t.same([...new Set(taken().map(({ source }) => source))].toSorted(), ['127.0.0.11', '127.0.0.12'])
    await second.kill('TERM')
    t.equal(second.exitCode(), 0)
  })

  await t.test('what is missing ends with 78 and a sentence', async (t) => {
    const data = dataFolder(folder, 'missing')
    const key = { '/run/secrets/master.key:ro': masterKey(folder) }
    const variables = { STERNPOST_HOSTNAME: 'mail.sternpost.test', STERNPOST_IPS: '198.51.100.7' }
    const ending = async (says: RegExp, options: Partial<Parameters<typeof start>[1]>): Promise<void> => {
      const container = start(image, { words: ['serve'], volumes: { '/data': data, ...key }, ...options })
      t.equal(await container.ended, 78, String(says))
      t.match(container.output(), says)
    }
    await ending(/there is no such folder/, {})
    await ending(/\$STERNPOST_IPS:1:1: pools\.default\.ips\[0\].* is not on this machine/, { environment: variables })
    await ending(/\$STERNPOST_HOSTNAME:1:1: .*tls\.certificates/, { environment: variables })
    await ending(/there is no file \/run\/secrets\/master\.key/, { environment: variables, volumes: { '/data': data } })
    configure(data, await freePort('127.0.0.1', LOW_PORTS), { deliveryPort: 2_525, dnsServer: '127.0.0.1' })
    await ending(/may not be opened by this user: .*NET_BIND_SERVICE/, { capabilities: [] })
    chownSync(data, 0, 0)
    chmodSync(data, 0o755)
    await ending(/user 2525 may not write into \/data/, {})
  })
})

/** None of its packages is older than the newest of Debian 12 that apt knew here when the image was made, or before. */
async function hasSecurityUpdates(container: Container): Promise<boolean> {
  const fields = await container.exec('sh', '-c', 'cat /var/lib/dpkg/status.d/libssl3 /var/lib/dpkg/status.d/openssl')
  const versions = [...fields.matchAll(/^Version: (.*)$/gm)].map(([, version = '']) => version)
  const known = execFileSync('apt-cache', ['madison', 'openssl'], { encoding: 'utf8' })
  const offered = [...known.matchAll(/\| +(\S+) \| .* bookworm\S*\/main /g)].map(([, version = '']) => version)
  const isAtLeast = (version: string, other: string): boolean =>
    spawnSync('dpkg', ['--compare-versions', version, 'ge', other]).status === 0
  return (
    offered.length > 0 &&
    versions.length === 2 &&
    versions.every((own) => offered.every((other) => isAtLeast(own, other)))
  )
}

function build(folder: string, name: string, words: readonly string[] = [], program = BUILD): string {
  const output = join(folder, name)
  mkdirSync(output)
  const options = { encoding: 'utf8', env: BUILD_ENVIRONMENT } as const
  return execFileSync(program, ['--output', output, ...words], options).trim()
}

/** Of the commit that brought the image, where the history is there: so its database is migrated by ours. */
function buildEarlier(t: Test, folder: string): string {
  const words = ['--version', EARLIER_VERSION]
  const git = (...asked: string[]) => spawnSync('git', ['-C', ROOT, ...asked], { maxBuffer: 100_000_000 })
  const commit = git('log', '--diff-filter=A', '--format=%H', '--', 'scripts/build-image').stdout.toString().trim()
  if (commit === '') return build(folder, 'earlier', words)
  t.comment(`the earlier image is of ${commit}`)
  const tree = join(folder, 'tree')
  mkdirSync(tree)
  execFileSync('tar', ['-x', '-C', tree], { input: git('archive', commit).stdout })
  return build(folder, 'earlier', words, join(tree, 'scripts/build-image'))
}

function digestOf(file: string): string {
  return createHash('sha256').update(readFileSync(file)).digest('hex')
}

function masterKey(folder: string): string {
  const file = join(folder, 'master.key')
  writeFileSync(file, MASTER_KEY, { mode: 0o600 })
  chownSync(file, IMAGE_USER, IMAGE_USER)
  return file
}

function configure(data: string, port: number, world: { deliveryPort: number; dnsServer: string }): void {
  const settings = {
    version: 1,
    hostname: 'mail.sternpost.test',
    public_url: `http://127.0.0.1:${port}`,
    delivery: { port: world.deliveryPort, allow_private_addresses: true },
    dns: { servers: [world.dnsServer] },
    health: { blocklists: [] },
    listen: {
      http: [{ address: '127.0.0.1', port, tls: false, serve: ['api', 'tracking', 'console'] }],
      submission: [],
      inbound: [],
      metrics: null,
    },
  }
  for (const [name, value] of Object.entries({ sternpost: settings, pools: TWO_IPS })) {
    const file = join(data, 'config', `${name}.yaml`)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, JSON.stringify(value))
  }
}

async function isHealthy(baseUrl: string): Promise<boolean> {
  return (await fetch(`${baseUrl}/health`).catch(() => null))?.ok === true
}
