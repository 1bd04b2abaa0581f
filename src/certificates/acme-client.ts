/**
 * The library that speaks ACME, loaded when there is an authority to speak to: that takes most of a second. Its requests
 * trust the authorities of the system and those of `tls.acme.ca_file`, and have bounds (network/trusted-request.ts).
 *
 * What the authority refuses is thrown as AcmeRefusal, with the type of the problem (RFC 8555 §6.7) and when it may be
 * asked again; what else fails, such as the network, as it is. A bad nonce the library answers itself.
 */
import { SECOND } from '../base/clock.ts'
import { createTrustedRequest } from '../network/trusted-request.ts'

export type AcmeLibrary = typeof import('acme-client')
export type AcmeClient = InstanceType<AcmeLibrary['Client']>

/** From here on an answer is none to go on with: a redirect is not followed. */
const FIRST_REFUSING_STATUS = 300
const BAD_NONCE = 'badNonce'

export class AcmeRefusal extends Error {
  /** Without its prefix, such as `rateLimited`, `dns`, `caa`. */
  readonly type: string
  /** Milliseconds; null: nothing was said. */
  readonly retryAfter: number | null

  constructor(type: string, detail: string, retryAfter: number | null) {
    super(detail)
    this.type = type
    this.retryAfter = retryAfter
  }
}

/** Asks for a resource without an account. Rejects with what the network says; what is refused is a body too. */
export type AcmeRequest = (url: string) => Promise<{ body: string; retryAfter: number | null }>

export interface Acme {
  library: AcmeLibrary
  ask: AcmeRequest
}

/** `directories`: URLs of the authorities. Rejects with the system's error when the file cannot be read. */
export async function loadAcme(directories: readonly string[], caFile: string | null): Promise<Acme> {
  const { default: library } = (await import('acme-client')) as unknown as { default: AcmeLibrary }
  const request = createTrustedRequest(directories, caFile)
  library.axios.defaults.adapter = async (config) => {
    const { status, headers, body } = await request(config.url ?? '', {
      method: (config.method ?? 'get').toUpperCase(),
      headers: config.headers.toJSON() as Record<string, string>,
      body: (config.data as string | undefined) ?? null,
    })
    if (status >= FIRST_REFUSING_STATUS) refuseUnlessNonce(body, status, headers['retry-after'])
    return { data: body, status, statusText: '', headers, config } as never
  }
  return {
    library,
    async ask(url) {
      const { headers, body } = await request(url, { method: 'GET', headers: {}, body: null })
      return { body, retryAfter: millisecondsOf(headers['retry-after']) }
    },
  }
}

/** RFC 7807, as RFC 8555 §6.7 uses it. */
function refuseUnlessNonce(body: string, status: number, retryAfter: string | string[] | undefined): void {
  const { type, detail } = problemIn(body)
  if (type === BAD_NONCE) return
  throw new AcmeRefusal(type, detail === '' ? `the authority answered ${status}` : detail, millisecondsOf(retryAfter))
}

function problemIn(body: string): { type: string; detail: string } {
  try {
    const { type = '', detail = '' } = JSON.parse(body) as Record<string, unknown>
    return { type: String(type).replace('urn:ietf:params:acme:error:', ''), detail: String(detail) }
  } catch {
    return { type: '', detail: '' }
  }
}

/** Of Retry-After: seconds, or a date (RFC 9110 §10.2.3). */
function millisecondsOf(header: string | string[] | undefined): number | null {
  if (typeof header !== 'string' || header === '') return null
  const seconds = Number(header)
  if (Number.isFinite(seconds)) return Math.max(0, seconds) * SECOND
  const at = Date.parse(header)
  return Number.isNaN(at) ? null : Math.max(0, at - Date.now())
}
