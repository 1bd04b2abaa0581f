/**
 * How old is the registration of each sending domain, by RDAP (health/README.md "Checks": domain-age)? RFC 9224, RFC
 * 9083 §4.5.
 *
 * A registry that cannot be asked, and a domain outside all of them, is skipped. Never throws.
 */
import { DAY } from '../../base/clock.ts'
import { isPlainObject } from '../../base/plain-object.ts'
import { organizationalDomain } from '../../mail/organizational-domain.ts'
import { checkOf } from './check.ts'
import type { HealthFinding } from './finding.ts'
import type { CheckWorld } from './world.ts'

const AGE = checkOf('domain-age', 'Filters distrust mail of domains that were registered a few weeks ago.')
/** health/README.md "Checks": six weeks. */
const YOUNG_DAYS = 42
const BOOTSTRAP = 'https://data.iana.org/rdap/dns.json'
const OK = 200
/** RFC 2606 §2 and RFC 6761: nobody can register there. */
const RESERVED = /(^|\.)(test|example|invalid|localhost|local|internal|example\.(com|net|org))$/
/** Registries are asked about so many domains in a run. */
const MOST_ASKED = 20

export const checkDomainAge = AGE.onServer(async (server, world) => {
  const views = (await world.server?.domains(world.domain)) ?? []
  const names = [...new Set(views.map(({ domain }) => organizationalDomain(domain)))]
  const askable = names.filter((name) => !RESERVED.test(name)).slice(0, MOST_ASKED)
  if (askable.length === 0) return [AGE.skip(null, 'there is no domain that a registry knows')]
  const registries = await registriesOf(world)
  if (registries === null) return [AGE.skip(null, `${BOOTSTRAP} could not be read`)]
  return Promise.all(askable.map((name) => ageOf(name, registries, world)))
})

type Registries = (topLevel: string) => string | undefined

async function registriesOf(world: CheckWorld): Promise<Registries | null> {
  const document = await jsonOf(BOOTSTRAP, world)
  const services = isPlainObject(document) ? document['services'] : undefined
  if (!Array.isArray(services)) return null
  return (topLevel) => {
    const service = services.find(
      (each) => Array.isArray(each) && Array.isArray(each[0]) && each[0].includes(topLevel) && Array.isArray(each[1]),
    )
    return service?.[1].find((url: unknown) => typeof url === 'string' && url.startsWith('https:'))
  }
}

async function ageOf(name: string, registries: Registries, world: CheckWorld): Promise<HealthFinding> {
  const base = registries(name.slice(name.lastIndexOf('.') + 1))
  if (base === undefined) return AGE.skip(name, 'its registry has no RDAP service')
  const document = await jsonOf(`${base.replace(/\/?$/, '/')}domain/${name}`, world)
  const registeredAt = registrationOf(document)
  if (registeredAt === null) return AGE.skip(name, 'its registry did not say when it was registered')
  const days = Math.floor((world.clock.now() - registeredAt) / DAY)
  if (days >= YOUNG_DAYS) return AGE.ok(name, `registered ${days} days ago`)
  const fix = `send little until it is ${YOUNG_DAYS} days old; warm its IPs with the curve conservative`
  return AGE.warn(name, `registered ${days} days ago`, fix)
}

/** Unix milliseconds, of the event `registration`. */
function registrationOf(document: unknown): number | null {
  const events = isPlainObject(document) ? document['events'] : undefined
  if (!Array.isArray(events)) return null
  const event: unknown = events.find((each) => isPlainObject(each) && each['eventAction'] === 'registration')
  const at = isPlainObject(event) ? Date.parse(String(event['eventDate'])) : Number.NaN
  return Number.isNaN(at) ? null : at
}

async function jsonOf(url: string, { fetchDocument }: CheckWorld): Promise<unknown> {
  const answer = await fetchDocument(url)
  if (answer.kind !== 'document' || answer.status !== OK) return null
  try {
    return JSON.parse(answer.bytes.toString('utf8'))
  } catch {
    // No JSON: the same as no answer.
    return null
  }
}
