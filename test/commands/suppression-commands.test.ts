/**
 * `sternpost suppression …` against the real interface, with files of any size.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { csvPieces } from '../../src/commands/mail/import-csv.ts'
import { keyNamed } from '../http/api-server.ts'
import { commandServer, sternpost } from './command-server.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'

t.test('add, list and remove; remove shows the entries first', async (t) => {
  const { run } = await commandServer(t)
  t.match(await run('suppression', 'list'), { code: 0, stdout: '', stderr: 'No such entry.\n' })
  t.match(await run('suppression', 'add', 'ada@Example.NET'), {
    code: 0,
    stdout: /^ada@example\.net is suppressed \(manual, scope all\) since \d/,
    stderr: '',
  })
  const news = await run('suppression', 'add', 'ada@example.net', '--scope', 'news', '--json')
  t.match(JSON.parse(news.stdout), { id: /^sup_/, email: 'ada@example.net', reason: 'manual', scope: 'news' })
  await run('suppression', 'add', 'bob@example.net')
  await run('suppression', 'add', 'ada@example.net', '--domain', 'acme.com')
  const { stdout } = await run('suppression', 'list', '--email', 'ada@example.net', '--since', '2026-01-01')
  t.same(
    stdout
      .split('\n')
      .slice(0, -1)
      .map((line) => line.split('\t').slice(1)),
    [
      ['ada@example.net', 'manual', 'all', 'acme.com', ''],
      ['ada@example.net', 'manual', 'news', '', ''],
      ['ada@example.net', 'manual', 'all', '', ''],
    ],
  )
  const limited = await run('suppression', 'list', '--limit', '2', '--json')
  t.match(limited.stderr, /more than these 2\. All: sternpost suppression export/)
  t.match(JSON.parse(limited.stdout), [{ domain: 'acme.com' }, { email: 'bob@example.net' }])

  const asked = await run('suppression', 'remove', 'ada@example.net')
  t.match(asked, {
    code: 64,
    stdout: 'ada@example.net: 3 entries would be removed: all (manual), news (manual), all (manual)\n',
  })
  t.match(asked.stderr, 'sternpost suppression remove ada@example.net --yes')
  const scoped = await run('suppression', 'remove', 'ada@example.net', '--scope', 'news', '--yes')
  t.match(scoped, { code: 0, stdout: 'ada@example.net: 1 entry removed\n', stderr: '' })
  const rest = await run('suppression', 'remove', 'ada@example.net', '--yes', '--json')
  t.same(JSON.parse(rest.stdout), { email: 'ada@example.net', deleted: 2 })
  t.match(await run('suppression', 'remove', 'ada@example.net', '--yes'), { code: 1, stderr: /is not suppressed\.\n/ })
  t.match(await run('suppression', 'add', 'ada@@x'), { code: 1, stderr: /email/ })
  t.match(await run('suppression', 'list', '--reason', 'whim'), { code: 64 })
  t.match(await run('suppression', 'list', '--limit', '0'), { code: 64, stderr: /--limit/ })
  t.match(await run('suppression', 'list', '--since', 'soon'), { code: 64, stderr: /--since: "soon" is no time/ })
})

t.test('what one server exports another one imports, and exports alike', async (t) => {
  const [from, to] = [await commandServer(t), await commandServer(t)]
  const file = join(from.folder, 'list.csv')
  const people = Array.from({ length: 248 }, (_, index) => `person+${index}@example.net`)
  // An import takes one apostrophe away.
  const addresses = [...people, '=a@example.net', "''+a@example.net"].map((email) => `${email},complaint,all`)
  writeFileSync(file, `email,reason,scope\n${addresses.join('\n')}\nquoted@example.net,"unsubscribe","news"\n`)
  const imported = await from.run('suppression', 'import', file)
  t.match(imported, { code: 0, stdout: 'added 251, there already 0, refused 0\n', stderr: '' })
  const exported = await from.run('suppression', 'export')
  t.equal(exported.code, 0)
  t.equal(exported.stdout.trimEnd().split('\n').length, 252, 'all pages and the header line')
  t.match(exported.stdout, /^email,reason,scope,domain\nquoted@example\.net,unsubscribe,news,\n/)
  const taken = join(from.folder, 'taken.csv')
  writeFileSync(taken, exported.stdout)
  const again = await to.run('suppression', 'import', taken, '--json')
  t.same(JSON.parse(again.stdout), { added: 251, existing: 0, rejected: 0, errors: [] })
  const back = await to.run('suppression', 'export')
  t.same(back.stdout.split('\n').toSorted(), exported.stdout.split('\n').toSorted())
  t.match(back.stdout, /^'=a@example\.net,/m, 'no formula to a spreadsheet')
  t.match(back.stdout, /^''\+a@example\.net,/m)
  t.equal(JSON.parse((await to.run('suppression', 'export', '--json')).stdout).length, 251)
  const some = await to.run('suppression', 'export', '--scope', 'news')
  t.equal(some.stdout, 'email,reason,scope,domain\nquoted@example.net,unsubscribe,news,\n')
})

t.test('an import says which line of the file is wrong, and is repeatable', async (t) => {
  const { folder, run } = await commandServer(t)
  const file = join(folder, 'list.csv')
  const rows = ['Email,Scope', 'a@example.net,all', 'b@@example.net,all', 'c@example.net,NO', 'a@example.net,']
  writeFileSync(file, `\ufeff${rows.join('\r\n')}\r\n`)
  const imported = await run('suppression', 'import', file)
  t.match(imported, { code: 1, stdout: 'added 1, there already 1, refused 2\n' })
  t.match(imported.stderr, /^line 3: .*\nline 4: .*scope.*\n$/)
  writeFileSync(file, 'name\nada\n')
  const headless = await run('suppression', 'import', file)
  t.match(headless, { code: 1, stdout: '', stderr: /header line email\[,reason\]\[,scope\]/ })
  writeFileSync(file, '')
  t.match(await run('suppression', 'import', file), { code: 1, stderr: /header line/ })
  const absent = await run('suppression', 'import', join(folder, 'none.csv'))
  t.match(absent, { code: 74, stderr: /^sternpost: ENOENT.*none\.csv/ })
  t.match(await run('suppression', 'import', folder), { code: 74, stderr: /^sternpost: EISDIR.*read\n$/ })
  const { api } = await commandServer(t)
  const elsewhere = ['--url', `http://127.0.0.1:${api.port}`, '--api-key', keyNamed('read')]
  t.match(await sternpost(['suppression', 'list', ...elsewhere]), { code: 77, stderr: /suppressions/ })
})

t.test('a file of any size goes in pieces, cut between rows', async (t) => {
  const { folder, run } = await commandServer(t)
  const file = join(folder, 'large.csv')
  const rows = IS_FULL ? 1_000_000 : 30_000
  const emails = Array.from({ length: rows }, (_, index) => `somebody.with.a.long.name+${index}@example.net`)
  writeFileSync(file, `email\n${emails.join('\n')}\nwrong`)
  const { code, stdout, stderr } = await run('suppression', 'import', file, '--json')
  t.match([code, JSON.parse(stdout)], [1, { added: rows, existing: 0, rejected: 1 }])
  t.match(stderr, new RegExp(`^line ${rows + 2}: `))
})

t.test('pieces keep whole rows, the header, and count lines', async (t) => {
  const file = join(t.testdir({}), 'x.csv')
  const piecesOf = async (text: string, usual: number) => {
    writeFileSync(file, text)
    const pieces = []
    for await (const piece of csvPieces(file, usual)) pieces.push(piece)
    return pieces
  }
  t.same(await piecesOf('email\na\r\n"b\n1",c\nd', 3), [
    { csv: 'email\na\r\n', firstLine: 2, lastLine: 2 },
    { csv: 'email\n"b\n1",c\n', firstLine: 3, lastLine: 4 },
    { csv: 'email\nd', firstLine: 5, lastLine: 5 },
  ])
  t.same(await piecesOf('email\ra\rb', 1), [
    { csv: 'email\ra\r', firstLine: 2, lastLine: 2 },
    { csv: 'email\rb', firstLine: 3, lastLine: 3 },
  ])
  t.same(await piecesOf('', 1), [{ csv: '', firstLine: 2, lastLine: 0 }])
  t.same(await piecesOf('email', 1), [{ csv: 'email', firstLine: 2, lastLine: 1 }])
  const open = await piecesOf(`email\n"never closed\n${`${'a'.repeat(100)}@example.net\n`.repeat(60_000)}`, 1_000)
  t.ok(
    open.every(({ csv }) => csv.length < 4_000_000),
    'a quote that is not closed does not swallow the file',
  )
  t.equal(open.at(-1)?.lastLine, 60_002)
  const endless = await piecesOf('x'.repeat(9_000_000), 1_000)
  t.ok(
    endless.every(({ csv }) => csv.length < 4_000_000),
    'nor does a line without an end',
  )
})
