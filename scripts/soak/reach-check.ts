/**
 * The part of the authorization matrix that must stay shut, asked of the server under load: keys of another sending
 * domain and of the test side, with each scope alone, at every route about a message, the endpoint, the domain and the
 * IP of the soak. What is expected stands in test/http/authorization-table.ts. A request that the server does not
 * take now (429, 503, no answer) says nothing.
 */
import { SCOPES } from '../../src/senders/api-key.ts'
import { TABLE, verdictOn, type Asker } from '../../test/http/authorization-table.ts'
import type { SoakScene } from './scene.ts'
import type { SideCheck } from './side-checks.ts'

const OTHER_DOMAIN = 'other.com'
const SHUT = ['message', 'endpoint', 'domain', 'ip', 'server']
const IP = '127.0.0.11'
const DOMAIN = 'acme.com'

type KnownAsker = Asker & { key: string }

async function makeAskers({ api }: SoakScene): Promise<KnownAsker[]> {
  const askers: KnownAsker[] = []
  for (const scope of SCOPES) {
    for (const mode of ['live', 'test']) {
      const body = { name: 'soak', mode, scopes: [scope], domains: [OTHER_DOMAIN] }
      const { data } = (await api.post('/keys', body)).body as { data: { key: string } }
      askers.push({ name: `${mode} ${scope}`, scope, isTest: mode === 'test', isLimited: true, key: data.key })
    }
  }
  return askers
}

export function createReachCheck(): SideCheck {
  let known: Promise<{ askers: KnownAsker[]; endpoint: string }> | undefined

  async function find(scene: SoakScene) {
    const askers = await makeAskers(scene)
    const { data } = (await scene.api.get('/webhooks')).body as { data: { id: string }[] }
    return { askers, endpoint: data[0]?.id ?? '' }
  }

  return {
    name: 'reach',
    async run(scene) {
      const { askers, endpoint } = await (known ??= find(scene))
      const [message = ''] = [...scene.ledger.accepted].slice(-1)
      const faults: string[] = []
      for (const [route, row] of Object.entries(TABLE)) {
        if (!SHUT.includes(row.about)) continue
        const [method = '', path = ''] = route.split(' ')
        const values = { message_id: message, id: endpoint, domain: DOMAIN, ip: IP }
        const target = path.replace(/:(\w+)/g, (_, name: string) => (values as Record<string, string>)[name] ?? 'x')
        for (const asker of askers) {
          const expected = verdictOn(route, row, asker, 'other')
          if (expected === 'ok') continue
          const answer = await fetch(`http://127.0.0.1:${scene.httpPort}/v1${target}`, {
            method,
            headers: { Authorization: `Bearer ${asker.key}`, 'Content-Type': 'application/json' },
            ...(method === 'GET' || row.body === undefined ? {} : { body: JSON.stringify(row.body) }),
          }).catch(() => null)
          const status = answer?.status ?? 503
          const { error } = ((await answer?.json().catch(() => ({}))) ?? {}) as { error?: { code: string } }
          const isSilent = status === 429 || status === 503
          if (!isSilent && error?.code !== expected)
            faults.push(`${asker.name} at ${route}: ${status}, not ${expected}`)
        }
      }
      return faults
    },
  }
}
