/** The hook for a cloud that systemd/README.md shows, before a server that plays the API of that cloud. */
import { execFile } from 'node:child_process'
import { existsSync, writeFileSync } from 'node:fs'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { shownText } from '../support/shown-texts.ts'

const run = promisify(execFile)
const missing = ['/usr/bin/curl', '/usr/bin/jq'].filter((file) => !existsSync(file))
const skip = missing.length > 0 && `${missing.join(', ')}: not installed`
const IP = '203.0.113.7'
const OTHER = '203.0.113.8'

t.test('the floating IP is assigned to this server, and waited for', { skip }, async (t) => {
  const said: string[] = []
  const state = { server: 41, asksUntilDone: 2, refuses: false }
  const api = createServer(async (request, response) => {
    const body = await request.reduce((text: string, piece: Buffer) => text + piece.toString(), '')
    const { method = '', url = '', headers } = request
    const isKnown = headers.authorization === 'Bearer secret' && !state.refuses
    said.push(`${method} ${url} ${body}`.trim())
    const answer = (): object => {
      if (url.startsWith('/v1/floating_ips?')) {
        const ips = [
          { id: 8, ip: OTHER, server: null },
          { id: 7, ip: IP, server: state.server },
        ]
        return { floating_ips: ips }
      }
      if (method === 'POST') state.server = (JSON.parse(body) as { server: number }).server
      else state.asksUntilDone -= 1
      return { action: { id: 13, status: state.asksUntilDone > 0 ? 'running' : 'success' } }
    }
    response.writeHead(isKnown ? 200 : 403, { 'Content-Type': 'application/json' })
    response.end(JSON.stringify(isKnown ? answer() : { error: { code: 'forbidden' } }))
  })
  api.listen(0, '127.0.0.1')
  await once(api, 'listening')
  t.teardown(() => api.close().closeAllConnections())
  const bound = api.address()
  const folder = t.testdir({ 'cloud-server': '42\n', 'cloud-header': 'Authorization: Bearer secret\n' })
  const hook = join(folder, 'move-ip')
  const shown = shownText('systemd/README.md', '# move-ip: a floating IP of Hetzner Cloud', {
    'https://api.hetzner.cloud': `http://127.0.0.1:${typeof bound === 'object' ? bound?.port : ''}`,
    '/etc/sternpost': folder,
  })
  writeFileSync(hook, shown, { mode: 0o755 })

  await run(hook, ['acquire', IP])
  const assigned = ['POST /v1/floating_ips/7/actions/assign {"server": 42}', 'GET /v1/floating_ips/7/actions/13']
  t.same(said.splice(0), ['GET /v1/floating_ips?per_page=50', ...assigned, 'GET /v1/floating_ips/7/actions/13'])
  await run(hook, ['acquire', IP])
  t.same(said.splice(0), ['GET /v1/floating_ips?per_page=50'], 'it is here already')
  await run(hook, ['release', IP])
  t.same(said, [], 'whoever wants it takes it')
  await t.rejects(run(hook, ['acquire', '203.0.113.9']), { code: 4 }, 'the project has no such address')
  state.refuses = true
  const refused: unknown = await run(hook, ['acquire', IP]).catch((thrown: unknown) => thrown)
  t.match(refused, { code: 22, stderr: /403/ })
})
