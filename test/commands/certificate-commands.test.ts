/** `sternpost certificate`: what is listed, with what to do about a problem, and a renewal that cannot be. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { createTestAuthority } from '../support/test-authority.ts'
import { commandServer } from './command-server.ts'

t.test('certificates are listed, and what is wrong with one is told with its fix', async (t) => {
  const authority = createTestAuthority('Own authority')
  t.teardown(() => authority.close())
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const { chain } = authority.issue(['mail.example.com', 't.example.com'])
  const cert_file = join(folder, 'chain.pem')
  writeFileSync(cert_file, chain)
  const certificateFiles = [
    { cert_file, cert: chain },
    { cert_file: join(folder, '\u001b[31mgone.pem'), cert: chain },
  ]
  const { run } = await commandServer(t, { certificateFiles })
  const listed = await run('certificate', 'list')
  t.equal(listed.code, 0, listed.stderr)
  t.match(listed.stdout, /^mail\.example\.com, t\.example\.com\tOwn authority, \S+chain\.pem\t\d{4}-\d\d-\d\d/)
  t.match(listed.stderr, /ENOENT.*gone\.pem.*; fix: put it back, then: sternpost reload/)
  t.notMatch(listed.stderr, '\u001b', 'a terminal obeys nothing of it')
  t.equal(JSON.parse((await run('certificate', 'list', '--json')).stdout).length, 2)
  t.match(await run('certificate', 'renew', 'mail.example.com'), { code: 1, stderr: /tls\.acme in sternpost\.yaml/ })
})
