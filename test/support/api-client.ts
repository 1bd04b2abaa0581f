/**
 * The HTTP API as an app uses it, and the steps that most tests begin with. Every answer is held against the schema of
 * its route.
 */
import { checkResponse } from './response-check.ts'

export interface ApiAnswer {
  status: number
  headers: Headers
  /** The parsed JSON body. */
  body: Record<string, unknown>
}

export interface ApiClient {
  get(path: string): Promise<ApiAnswer>
  post(path: string, body: unknown): Promise<ApiAnswer>
  patch(path: string, body: unknown): Promise<ApiAnswer>
  delete(path: string): Promise<ApiAnswer>
  /** Sends one message and gives its id; throws when it is not accepted. */
  send(message: Record<string, unknown>): Promise<string>
}

export function apiClient(baseUrl: string, key: string): ApiClient {
  const ask = async (method: string, path: string, body?: unknown): Promise<ApiAnswer> => {
    const answer = await fetch(`${baseUrl}/v1${path}`, {
      method,
      headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const { status, headers } = answer
    const answered = (await answer.json()) as Record<string, unknown>
    checkResponse({ method, path: `/v1${path}`, status, body: answered })
    return { status, headers, body: answered }
  }
  return {
    get: (path) => ask('GET', path),
    post: (path, body) => ask('POST', path, body),
    patch: (path, body) => ask('PATCH', path, body),
    delete: (path) => ask('DELETE', path),
    async send(message) {
      const { status, body } = await ask('POST', '/email/send', message)
      if (status !== 200) throw new Error(`not accepted: ${status} ${JSON.stringify(body)}`)
      return String(body['message_id'])
    },
  }
}

interface DnsInstruction {
  type: string
  name: string
  value: string
  via?: string
}

/** Adds a sending domain, publishes what the answer asks for, and has it verified. */
export async function addVerifiedDomain(
  api: ApiClient,
  domain: string,
  publish: (records: DnsInstruction[]) => void,
): Promise<Record<string, unknown>> {
  const added = await api.post('/domains', { domain })
  const data = added.body['data'] as { records: DnsInstruction[] }
  publish(data.records)
  const verified = await api.post(`/domains/${domain}/verify`, {})
  const record = verified.body['data'] as Record<string, unknown>
  if (record['verified'] !== true) throw new Error(`${domain} is not verified: ${JSON.stringify(record)}`)
  return record
}
