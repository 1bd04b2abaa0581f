/**
 * The architecture as a test: who may import whom, which package lives where, no SQL outside the store, no circles,
 * no file above 400 lines, and nothing that knows of the sandbox. Each rule is also run on planted mistakes, so that
 * the test is known to be able to fail. The tables are explained in `src/README.md`.
 */
import t from 'tap'
import { filesBelow, SOURCE, specifiersOf, targetOf, type SourceFile } from './support/source-files.ts'

const MAY_IMPORT: Record<string, readonly string[]> = {
  base: [],
  mail: ['base'],
  config: ['base', 'mail'],
  network: ['base'],
  store: ['base', 'mail'],
  nodes: ['base', 'store'],
  content: ['base', 'mail'],
  senders: ['base', 'mail', 'config', 'network', 'store', 'egress'],
  health: ['base', 'mail', 'config', 'network', 'store', 'senders', 'egress'],
  egress: ['base', 'mail', 'config', 'network', 'store'],
  messages: ['base', 'mail', 'config', 'api', 'store', 'content', 'senders', 'egress'],
  delivery: ['base', 'mail', 'config', 'network', 'store', 'content', 'egress'],
  webhooks: ['base', 'mail', 'config', 'api', 'network', 'store'],
  inbound: ['base', 'mail', 'config', 'network', 'store', 'senders', 'messages'],
  certificates: ['base', 'config', 'network', 'store'],
  api: ['base', 'mail'],
  http: ['base', 'mail', 'config', 'api', 'senders', 'egress', 'health', 'messages', 'nodes', 'webhooks'],
  commands: [
    'base',
    'mail',
    'config',
    'api',
    'network',
    'store',
    'senders',
    'egress',
    'health',
    'messages',
    'webhooks',
  ],
  console: ['api'],
  capture: ['base', 'mail', 'config', 'content'],
  clients: [],
  sandbox: ['base', 'mail', 'config', 'network', 'capture'],
  operations: [
    'base',
    'mail',
    'config',
    'network',
    'store',
    'senders',
    'egress',
    'health',
    'messages',
    'delivery',
    'webhooks',
    'http',
    'nodes',
  ],
  assembly: [
    'base',
    'mail',
    'config',
    'network',
    'store',
    'content',
    'senders',
    'egress',
    'health',
    'messages',
    'delivery',
    'webhooks',
    'inbound',
    'http',
    'commands',
    'capture',
    'sandbox',
    'operations',
    'certificates',
    'nodes',
  ],
  'appliance.ts': [
    'assembly',
    'base',
    'mail',
    'config',
    'network',
    'store',
    'content',
    'senders',
    'egress',
    'health',
    'messages',
    'delivery',
    'webhooks',
    'inbound',
    'http',
    'commands',
    'capture',
    'sandbox',
    'operations',
  ],
  'starters.ts': ['base', 'config', 'senders', 'commands', 'capture', 'sandbox', 'appliance.ts'],
  'main.ts': ['base', 'commands', 'starters.ts'],
}

/** Path prefixes below `src`. */
const PACKAGE_LIVES_IN: Record<string, readonly string[]> = {
  preact: ['console/'],
  'preact/hooks': ['console/'],
  htm: ['console/'],
  '@preact/signals': ['console/'],
  koa: ['http/', 'sandbox/'],
  '@koa/router': ['http/', 'sandbox/'],
  zod: ['api/', 'config/', 'http/'],
  yaml: ['config/', 'http/openapi/'],
  'better-sqlite3': ['store/sqlite/'],
  pg: ['store/postgresql/'],
  'smtp-server': ['inbound/', 'capture/'],
  nodemailer: ['content/', 'capture/'],
  '@simplewebauthn/server': ['operations/'],
  mailauth: ['content/', 'senders/', 'network/', 'inbound/'],
  'postal-mime': ['mail/', 'inbound/', 'sandbox/'],
  htmlparser2: ['content/', 'mail/authentication/'],
  undici: ['network/'],
  'acme-client': ['certificates/'],
  'ipaddr.js': ['base/'],
  pino: ['base/'],
  'prom-client': ['base/'],
  tldts: ['mail/'],
  'lru-cache': ['base/', 'network/', 'content/', 'delivery/', 'egress/', 'webhooks/'],
  commander: ['commands/'],
  'node-cron': ['operations/'],
}

/**
 * The only files that may know that a sandbox exists: it, the composition root, and the command that starts it. The
 * word is also a directive of a Content-Security-Policy.
 */
const KNOWS_SANDBOX = [
  'sandbox/',
  'appliance.ts',
  'assembly/',
  'starters.ts',
  'commands/server/sandbox.ts',
  // Its first screen there is the inbox.
  'console/',
  'commands/command-line.ts',
  'commands/verbs.ts',
]
const MOST_LINES = 400

// A string literal that opens with a statement word and goes on like SQL.
const SQL =
  /[`'"]\s*(select\s[\s\S]+?\sfrom\s|insert\s+(or\s+\w+\s+)?into\s|update\s+\w+\s+set\s|delete\s+from\s|create\s+table\s)/i

function brokenRules(file: SourceFile): string[] {
  const problems: string[] = []
  const folder = folderOf(file.name)
  for (const specifier of specifiersOf(file.text)) {
    if (specifier.startsWith('node:')) continue
    if (specifier.startsWith('.')) {
      const target = folderOf(targetOf(file.name, specifier))
      const isAllowed = target === folder || (MAY_IMPORT[folder] ?? []).includes(target)
      if (!isAllowed) problems.push(`${file.name} may not import from ${target}`)
    } else if (!(PACKAGE_LIVES_IN[packageOf(specifier)] ?? []).some((place) => file.name.startsWith(place))) {
      problems.push(`${file.name} may not import the package ${specifier}`)
    }
  }
  if (folder !== 'store' && SQL.test(file.text)) problems.push(`${file.name} holds SQL`)
  if (!KNOWS_SANDBOX.some((place) => file.name.startsWith(place)) && /sandbox(?!; default-src)/i.test(file.text)) {
    problems.push(`${file.name} knows of the sandbox`)
  }
  const lines = file.text.split('\n').length - 1
  if (lines > MOST_LINES) problems.push(`${file.name} has ${lines} lines, the most is ${MOST_LINES}`)
  return problems
}

/** Files that lead back to themselves, each circle once. */
function circles(files: readonly SourceFile[]): string[] {
  const known = new Map(files.map((file) => [file.name, file]))
  const state = new Map<string, 'open' | 'done'>()
  const found: string[] = []
  const visit = (name: string, path: readonly string[]): void => {
    const file = known.get(name)
    if (file === undefined || state.get(name) === 'done') return
    if (state.get(name) === 'open') {
      found.push([...path.slice(path.indexOf(name)), name].join(' -> '))
      return
    }
    state.set(name, 'open')
    // Types alone make no circle at run time, but they make one for the reader: they count.
    for (const specifier of specifiersOf(file.text)) {
      if (specifier.startsWith('.')) visit(targetOf(name, specifier), [...path, name])
    }
    state.set(name, 'done')
  }
  for (const file of files) visit(file.name, [])
  return found
}

/**
 * Subfolders of one folder that import each other both ways. The files directly in the folder count as one more: they
 * import the subfolders or are imported by them, never both.
 */
function twoWayPairs(files: readonly SourceFile[]): string[] {
  const arrows = new Set<string>()
  for (const { name, text } of files) {
    for (const specifier of specifiersOf(text)) {
      if (!specifier.startsWith('.')) continue
      const [folder, from, to] = whereTheyPart(name, targetOf(name, specifier))
      if (folder !== '' && from !== to) arrows.add(`${folder}: ${from} -> ${to}`)
    }
  }
  return [...arrows].filter((arrow) => {
    const [folder = '', from = '', to = ''] = arrow.split(/: | -> /)
    return from < to && arrows.has(`${folder}: ${to} -> ${from}`)
  })
}

/** The last folder that two files share, and the subfolder of it that each is in; a dot for the folder itself. */
function whereTheyPart(left: string, right: string): [folder: string, left: string, right: string] {
  const [one, two] = [left.split('/').slice(0, -1), right.split('/').slice(0, -1)]
  let depth = 0
  while (depth < one.length && one[depth] === two[depth]) depth++
  return [one.slice(0, depth).join('/'), one[depth] ?? '.', two[depth] ?? '.']
}

const folderOf = (name: string): string => name.split('/')[0] ?? ''
const packageOf = (name: string): string =>
  name
    .split('/')
    .slice(0, name.startsWith('@') ? 2 : 1)
    .join('/')
const sourceFiles = filesBelow(SOURCE)

t.test('every source file keeps the rules', async (t) => {
  t.ok(sourceFiles.length > 50, 'the sources were found')
  t.same(sourceFiles.flatMap(brokenRules), [])
})

t.test('no file leads back to itself', async (t) => {
  t.same(circles(sourceFiles), [])
})

t.test('no two subfolders import each other both ways', async (t) => {
  t.same(twoWayPairs(sourceFiles), [])
})

t.test('the server runs on a Node that reads TypeScript', async (t) => {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  t.ok(major > 22 || (major === 22 && minor >= 19), process.versions.node)
})

t.test('planted mistakes are found', async (t) => {
  const planted: [string, SourceFile][] = [
    ['a wrong folder', { name: 'delivery/x.ts', text: `import { y } from '../messages/y.ts'` }],
    ['a wrong folder by type', { name: 'http/x.ts', text: `import type { Store } from '../store/store.ts'` }],
    ['a wrong folder by re-export', { name: 'mail/x.ts', text: `export { y } from '../http/y.ts'` }],
    ['a wrong folder by dynamic import', { name: 'base/x.ts', text: `await import('../mail/y.ts')` }],
    [
      'a wrong folder by worker',
      { name: 'http/x.ts', text: `new Worker(new URL('../delivery/t.ts', import.meta.url))` },
    ],
    ['the composition root', { name: 'http/x.ts', text: `import { start } from '../appliance.ts'` }],
    ['a package outside its folder', { name: 'http/x.ts', text: `import Database from 'better-sqlite3'` }],
    ['a package that nobody listed', { name: 'base/x.ts', text: `import _ from 'lodash'` }],
    ['SQL in a route', { name: 'http/x.ts', text: 'const rows = run(`select id from messages`)' }],
    ['SQL that inserts', { name: 'delivery/x.ts', text: `run('insert into events values (1)')` }],
    ['a file that knows of the sandbox', { name: 'delivery/x.ts', text: 'if (isSandbox) skip()' }],
    ['a file that grew too long', { name: 'mail/x.ts', text: '\n'.repeat(MOST_LINES + 1) }],
  ]
  for (const [what, file] of planted) t.equal(brokenRules(file).length, 1, what)
  t.same(brokenRules({ name: 'mail/x.ts', text: `import { z } from '../base/z.ts'\nread('from'), 'x'` }), [])
  t.same(
    circles([
      { name: 'mail/a.ts', text: `import { b } from './b.ts'` },
      { name: 'mail/b.ts', text: `import type { a } from './a.ts'` },
    ]),
    ['mail/a.ts -> mail/b.ts -> mail/a.ts'],
  )
  t.same(
    twoWayPairs([
      { name: 'mail/reply/a.ts', text: `import { b } from '../report/b.ts'` },
      { name: 'mail/report/c.ts', text: `import type { d } from '../reply/d.ts'` },
      { name: 'mail/e.ts', text: `import { a } from './reply/a.ts'` },
    ]),
    ['mail: reply -> report'],
  )
})
