/**
 * Do the systemd units fit: ports of the socket unit as in `listen`, and no drop-in that weakens the service
 * (health/README.md "Checks": units)? Skipped where systemd does not run. Never throws.
 */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { SECOND } from '../../base/clock.ts'
import { checkOf, type HealthFinding } from './check.ts'
import { ownDoors } from './own-doors.ts'

const UNITS = checkOf('units', 'systemd opens the ports, starts the server and fences it in.')
const BOTH = 'sternpost.socket sternpost.service'
const SYSTEMD = '/run/systemd/system'
const SHOW_MILLISECONDS = 5 * SECOND
const FIRST_FREE_PORT = 1024
/** Properties of the service as it is shipped (systemd/README.md "The unit"). */
const FENCES: Readonly<Record<string, string>> = {
  NoNewPrivileges: 'yes',
  PrivateUsers: 'yes',
  PrivateTmp: 'yes',
  PrivateDevices: 'yes',
  ProtectSystem: 'strict',
  ProtectHome: 'yes',
  ProtectKernelTunables: 'yes',
  ProtectControlGroups: 'yes',
  RestrictNamespaces: 'yes',
  CapabilityBoundingSet: '',
}

export const checkUnits = UNITS.outside(async (world) => {
  if (!existsSync(SYSTEMD)) return [UNITS.skip(null, 'systemd does not run here')]
  const [service, socket] = await Promise.all([
    show('sternpost.service', ['LoadState', 'ActiveState', 'UnitFileState', 'DropInPaths', ...Object.keys(FENCES)]),
    show('sternpost.socket', ['Listen']),
  ])
  const ports = ownDoors(world.configuration.server).map(({ port }) => port)
  return unitFindings({ service, socket }, ports)
})

/** `shown`: what `systemctl show` prints of each. */
export function unitFindings(
  shown: { service: string; socket: string },
  configured: readonly number[],
): HealthFinding[] {
  const service = propertiesIn(shown.service)
  if (service['LoadState'] !== 'loaded') return [UNITS.skip(null, 'sternpost.service is not installed')]
  return [stateOf(service), ...weakened(service), portsOf(propertiesIn(shown.socket), configured)]
}

type Properties = Record<string, string>

function stateOf(service: Properties): HealthFinding {
  const { ActiveState: state = '', UnitFileState: enabled = '' } = service
  if (state !== 'active') {
    // After some failed starts systemd refuses the next one, and has closed the sockets.
    const again = state === 'failed' ? `systemctl reset-failed ${BOTH}; ` : ''
    const fix = `${again}systemctl start ${BOTH}; see: journalctl -u sternpost -n 50`
    return UNITS.fail('sternpost.service', `it is ${state}`, fix)
  }
  if (enabled !== 'enabled') {
    const fix = `systemctl enable ${BOTH}`
    return UNITS.warn('sternpost.service', `it is ${enabled}: it does not start with the machine`, fix)
  }
  return UNITS.ok('sternpost.service', 'it is active and enabled')
}

function weakened(service: Properties): HealthFinding[] {
  const weak = Object.entries(FENCES).filter(([name, wanted]) => (service[name] ?? wanted) !== wanted)
  if (weak.length === 0) return []
  const seen = weak.map(([name]) => `${name}=${service[name]}`).join(', ')
  const where = service['DropInPaths'] === '' ? 'the unit' : service['DropInPaths']
  const right = weak.map(([name, wanted]) => `${name}=${wanted}`).join(', ')
  const fix = `remove these lines: systemctl edit sternpost; wanted: ${right}`
  return [UNITS.warn('sternpost.service', `${where} weakens it: ${seen}`, fix)]
}

function portsOf(socket: Properties, configured: readonly number[]): HealthFinding {
  // `[::]:25 (Stream)`, one after the other.
  const opened = new Set([...(socket['Listen'] ?? '').matchAll(/:(\d+) \(Stream\)/g)].map(([, port]) => Number(port)))
  const missing = configured.filter((port) => port < FIRST_FREE_PORT && !opened.has(port))
  const extra = [...opened].filter((port) => !configured.includes(port))
  if (missing.length > 0) {
    const lines = missing.map((port) => `ListenStream=${port}`).join(' ')
    const fix = `systemctl edit sternpost.socket: [Socket] ${lines}; then restart sternpost.socket and sternpost`
    return UNITS.fail('sternpost.socket', `it does not open ${missing.join(', ')}, which sternpost.yaml names`, fix)
  }
  if (extra.length > 0) {
    const fix = 'add a door to listen in sternpost.yaml, or take the port out: systemctl edit sternpost.socket'
    return UNITS.warn('sternpost.socket', `it opens ${extra.join(', ')}, which nobody serves`, fix)
  }
  return UNITS.ok('sternpost.socket', `it opens ${[...opened].join(', ')}`)
}

/** Nothing where systemctl does not answer. */
function show(unit: string, properties: string[]): Promise<string> {
  const words = ['show', unit, ...properties.map((name) => `--property=${name}`)]
  return new Promise((resolve) => {
    execFile('systemctl', words, { timeout: SHOW_MILLISECONDS }, (_error, stdout) => resolve(stdout))
  })
}

function propertiesIn(text: string): Properties {
  const found: Properties = {}
  for (const line of text.split('\n')) {
    const at = line.indexOf('=')
    if (at < 1) continue
    const [name, value] = [line.slice(0, at), line.slice(at + 1)]
    // `Listen` has a line for each port.
    found[name] = found[name] === undefined ? value : `${found[name]} ${value}`
  }
  return found
}
