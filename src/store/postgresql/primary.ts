/**
 * Which of the servers that a URL names takes changes. All are asked, each time that a connection is made: a standby may
 * have been promoted meanwhile. Rejects where none does; and where two do, since one of them is an earlier primary, and
 * what it is told nobody else hears.
 */
import pg from 'pg'

interface Looked {
  url: string
  host: string
  found: 'primary' | 'standby' | 'nobody'
  reason: string
  code: string
}

/** The URL of one server. `mayBeStandby`: where there is no primary, any that answers. */
export async function findPrimary(url: string, timeoutMilliseconds: number, mayBeStandby: boolean): Promise<string> {
  const urls = urlsOf(url)
  if (urls.length === 1) return url
  const looked = await Promise.all(urls.map((each) => look(each, timeoutMilliseconds)))
  const [primary, another] = looked.filter(({ found }) => found === 'primary')
  if (primary !== undefined && another !== undefined) {
    const both = `${primary.host} and ${another.host}`
    throw new Error(`${both} both take changes: stop the one that was the primary before`)
  }
  const usable = primary ?? (mayBeStandby ? looked.find(({ found }) => found === 'standby') : undefined)
  if (usable !== undefined) return usable.url
  const problem = new Error(looked.map(({ host, reason }) => `${host}: ${reason}`).join('; '))
  throw Object.assign(problem, { code: looked.find(({ found }) => found === 'nobody')?.code ?? '' })
}

/** One for each host: as libpq does, they stand in the parameters `host` and `port`. */
function urlsOf(url: string): string[] {
  const { searchParams } = new URL(url)
  const hosts = searchParams.get('host')?.split(',') ?? []
  const ports = searchParams.get('port')?.split(',') ?? []
  if (hosts.length < 2) return [url]
  return hosts.map((host, index) => {
    const each = new URL(url)
    each.searchParams.set('host', host)
    const port = ports[index] ?? ports[0]
    if (port !== undefined) each.searchParams.set('port', port)
    return each.href
  })
}

async function look(url: string, connectionTimeoutMillis: number): Promise<Looked> {
  const { searchParams } = new URL(url)
  const host = `${searchParams.get('host')}:${searchParams.get('port')}`
  const timeouts = { connectionTimeoutMillis, query_timeout: connectionTimeoutMillis }
  const client = new pg.Client({ connectionString: url, ...timeouts })
  client.on('error', () => {})
  try {
    await client.connect()
    const { rows } = await client.query<{ standby: boolean }>('select pg_is_in_recovery() as standby')
    const found = rows[0]?.standby === true ? 'standby' : 'primary'
    return { url, host, found, reason: 'a standby, which takes no changes', code: '' }
  } catch (thrown) {
    const { message = '', code = '' } = thrown as { message?: string; code?: string }
    return { url, host, found: 'nobody', reason: message || code, code }
  } finally {
    void client.end().catch(() => {})
  }
}
