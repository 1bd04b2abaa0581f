/**
 * What the DNS says of the domains that send: DKIM, return path, SPF for each IP, DMARC, tracking name; and how old
 * their registrations are (health/README.md "Checks": domain-*). The server has the judgement; here it becomes findings
 * with what to publish instead. Never throws.
 */
import type { DomainView, RecordView } from '../../senders/domain-view.ts'
import { FOREIGN_KEY, rotationHint } from '../../senders/records/dkim-keys.ts'
import { checkOf, DNS_FIX, type Verdicts, type HealthFinding } from './check.ts'
import { DAY } from '../../base/clock.ts'
import { isPlainObject } from '../../base/plain-object.ts'
import { shellWord } from '../../base/shell-word.ts'
import { organizationalDomain } from '../../mail/organizational-domain.ts'
import type { CheckWorld } from './world.ts'

const PURPOSES: Readonly<Record<RecordView['purpose'], Verdicts>> = {
  dkim: checkOf('domain-dkim', 'Without a valid signature large providers refuse or junk the mail.'),
  return_path: checkOf('domain-return-path', 'Bounces of the domain have to reach this server.'),
  spf: checkOf('domain-spf', 'Receivers ask SPF whether the sending IP may use the domain.'),
  dmarc: checkOf('domain-dmarc', 'Large providers demand a DMARC record of bulk senders.'),
  dmarc_reports: checkOf('domain-dmarc-reports', 'Without it most receivers send no DMARC reports about the domain.'),
  tracking: checkOf('domain-tracking', 'Links and pixels of the domain lead to this name.'),
}
const DOMAIN = checkOf('domain', 'Only a verified domain sends.')
const PLATFORM = checkOf('domain', 'Feedback loops know the mail of this server by the signature of this domain.')

export const checkDomains = DOMAIN.onServer(async (server, { domain, configuration }) => {
  const domains = await server.domains(domain)
  const { platform_domain: platform } = configuration.server.domains.dkim
  const isAsked = platform !== null && (domain === null || domain === platform)
  const signs = domains.some((view) => view.domain === platform && view.can_send)
  const ofPlatform = isAsked && !signs ? [silentPlatform(platform)] : []
  if (domains.length > 0) return [...shortened(domains.flatMap(ofDomain), domains.length), ...ofPlatform]
  if (domain === null) return [DOMAIN.skip(null, 'no domain is verified yet'), ...ofPlatform]
  const fix = `sternpost domain list; sternpost domain check ${shellWord(domain)}`
  return [DOMAIN.fail(domain, 'it is not there, or was never verified', fix), ...ofPlatform]
})

/** What it does not sign is sent all the same: nobody would see it. */
function silentPlatform(name: string): HealthFinding {
  const seen = 'domains.dkim.platform_domain names it, but it cannot send here: it signs no mail'
  const fix = `sternpost domain add ${name}, and verify it; or set domains.dkim.platform_domain to null`
  return PLATFORM.warn(name, seen, fix)
}

/** With thousands of domains nobody reads what is well, nor the same fault of each. */
const MOST_FINDINGS = 500

function shortened(findings: HealthFinding[], domains: number): HealthFinding[] {
  if (findings.length <= MOST_FINDINGS) return findings
  const troubled = findings.filter(({ result }) => result !== 'ok')
  const left = troubled.length - MOST_FINDINGS
  if (left > 0) {
    const rest = DOMAIN.fail(null, `${left} more findings are not shown`, 'sternpost doctor domain --domain <name>')
    return [...troubled.slice(0, MOST_FINDINGS), rest]
  }
  const well = findings.length - troubled.length
  return [DOMAIN.ok(null, `${well} records of ${domains} domains are as they should be`), ...troubled]
}

function ofDomain(view: DomainView): HealthFinding[] {
  const findings = view.records.filter(({ role }) => role === undefined).map((record) => ofRecord(view, record))
  if (view.can_send) return findings
  const fix = `mend its records, then: sternpost domain check ${view.domain}`
  return [...findings, DOMAIN.fail(view.domain, `its state is ${view.status}: mail of it is refused`, fix)]
}

function ofRecord({ domain, records }: DomainView, record: RecordView): HealthFinding {
  const { ok, warn, fail } = PURPOSES[record.purpose]
  const { status, found, error, hint, required } = record
  if (status === 'verified') return ok(domain, found[0] ?? 'as it should be')
  if (status === 'temporary_failure') return warn(domain, error ?? 'the DNS did not answer', DNS_FIX)
  const hints = hint === null || error === FOREIGN_KEY ? [] : [hint]
  const seen = [error ?? `nothing is published at ${record.name}`, ...hints].join('; ')
  const shown = found.length === 0 ? seen : `${seen}; found: ${found.join(' | ')}`
  // What another record brings along cannot stand beside it (RFC 1034 §3.6.2).
  const wanted = records.find(({ purpose }) => purpose === record.via) ?? record
  const publish = `publish: ${wanted.name}. ${wanted.type} ${valueOf(wanted)}; then: sternpost domain check ${domain}`
  const isPublished = wanted.type === 'CNAME' && found.includes(wanted.value)
  const right = `the record is right: mend what is said of it, then: sternpost domain check ${domain}`
  const fix = error === FOREIGN_KEY ? rotationHint(domain) : isPublished ? right : publish
  return required ? fail(domain, shown, fix) : warn(domain, shown, fix)
}

function valueOf({ type, value }: RecordView): string {
  return type === 'TXT' ? `"${value}"` : `${value}.`
}

const AGE = checkOf('domain-age', 'Filters distrust mail of domains that were registered a few weeks ago.')
/** health/README.md "Checks": six weeks. */
const YOUNG_DAYS = 42
const BOOTSTRAP = 'https://data.iana.org/rdap/dns.json'
const OK = 200
/** RFC 2606 §2 and RFC 6761: nobody can register there. */
const RESERVED = /(^|\.)(test|example|invalid|localhost|local|internal|example\.(com|net|org))$/
/** Registries are asked about so many domains in a run. */
const MOST_ASKED = 20

/** By RDAP (RFC 9224, RFC 9083 §4.5). A registry that cannot be asked, and a domain outside all of them, is skipped. */
export const checkDomainAge = AGE.onServer(async (server, world) => {
  const views = await server.domains(world.domain)
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
