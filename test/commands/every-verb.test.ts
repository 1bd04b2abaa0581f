/**
 * Every verb of the command line says what it does, shows an example that is a verb, and can answer in JSON; and the
 * JSON of those that need no server has a pinned shape.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { createProgram } from '../../src/commands/command-line.ts'
import { commandTree, everyCommand, type CommandNode } from '../../src/commands/command-tree.ts'
import { VERB_FILES } from '../../src/commands/verbs.ts'
import { SHIPPED_FOLDER } from '../../src/commands/shared/flag-values.ts'
import { FILE_NAMES } from '../../src/config/source/finding.ts'
import { configurationSchemas, shippedDocs } from '../../src/config/json-schemas.ts'
import { sternpost } from './command-server.ts'

const refuse = async (): Promise<never> => {
  throw new Error('no server is started here')
}
const program = await createProgram('0.0.0', refuse)
const verbs = everyCommand(commandTree(program)).filter(
  ({ path, children }) => path.length > 0 && children.length === 0,
)
const byPath = new Map(verbs.map((verb) => [verb.path.join(' '), verb]))

/** Their result is not for reading: a server that runs, a script for the shell. */
const WITHOUT_JSON = ['serve', 'completion']

function problemsOf(verb: CommandNode): string[] {
  const { path, description, example, options } = verb
  const name = path.join(' ')
  const has = (flag: string): boolean => options.some((option) => option.name === flag)
  return [
    description === '' ? 'has no description' : '',
    /[.]$/.test(description) ? 'its description ends with a full stop' : '',
    new RegExp(`\\bsternpost ${name}\\b`).test(example) ? '' : 'shows no example of itself',
    has('--json') || WITHOUT_JSON.includes(name) ? '' : 'cannot answer in JSON',
  ]
    .filter((problem) => problem !== '')
    .map((problem) => `${name}: ${problem}`)
}

t.test('a verb is loaded alone when it is named', async (t) => {
  const names = VERB_FILES.flatMap((file) => file.names)
  const all = program.commands.map((command) => command.name())
  t.strictSame(names.toSorted(), all.filter((name) => name !== 'completion').toSorted(), 'each has its file')
  for (const name of names) {
    const { commands } = await createProgram('0.0.0', refuse, name)
    t.ok(commands.length <= 2 && commands.some((command) => command.name() === name), name)
  }
})

t.test('every verb has a description, an example and --json', async (t) => {
  t.ok(verbs.length > 60, `${verbs.length} verbs`)
  t.same(verbs.flatMap(problemsOf), [])
  t.same(
    problemsOf({
      path: ['x'],
      description: '',
      example: '',
      argumentWords: '',
      choices: [],
      options: [],
      children: [],
    }),
    ['x: has no description', 'x: shows no example of itself', 'x: cannot answer in JSON'],
  )
})

t.test('the verbs that the documents promise are there', async (t) => {
  const promised = `check,config check,doctor,serve,sandbox,status,top,reload,config show,config diff,config docs,send,
    message show,message list,message tail,message cancel,message retry,queue list,queue explain,queue retry,queue hold,
    queue release,queue drop,queue move,ip list,ip show,ip warmup start,ip warmup pause,ip warmup resume,
    ip warmup complete,ip warmup restart,ip warmup forecast,ip suspend,ip resume,pool list,pool show,path list,
    path resume,provider list,provider show,provider explain,config test-reply,domain add,domain list,domain show,
    domain remove,domain check,domain dns,domain dkim rotate,webhook list,webhook show,webhook add,webhook remove,
    webhook test,webhook deliveries,webhook replay,listen,suppression list,suppression add,suppression remove,
    suppression import,suppression export,bounce read,key create,key list,key revoke,key rotate,logs,version,completion,
    setup`
  const missing = promised
    .split(',')
    .map((name) => name.trim())
    .filter((name) => !byPath.has(name))
  t.same(missing, [])
})

t.test('examples use flags that there are', async (t) => {
  for (const { path, example, options } of verbs) {
    const own = example.split('\n').filter((line) => line.startsWith(`sternpost ${path.join(' ')}`))
    for (const flag of own.join(' ').match(/(?<=\s)--[a-z][a-z-]*/g) ?? []) {
      t.ok(
        options.some(({ name }) => name === flag),
        `${path.join(' ')} knows ${flag}`,
      )
    }
  }
})

t.test('keys of the configuration are shown with their origin, and explained', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-config-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const server = join(folder, 'sternpost.yaml')
  writeFileSync(server, 'version: 1\nhostname: mail.example.net\ndns:\n  servers: [192.0.2.1]\nlog: { level: warn }\n')
  const pools = 'version: 1\ndefault_pool: a\npools: { a: { ips: [{ address: 192.0.2.9 }] } }\n'
  writeFileSync(join(folder, 'pools.yaml'), pools)
  const inJson = async (...words: string[]): Promise<unknown> =>
    JSON.parse((await sternpost([...words, '--json'])).stdout)

  const shown = await inJson('config', 'show', 'dns.servers', '--config', folder)
  t.strictSame(shown, [{ file: 'sternpost', key: 'dns.servers', value: ['192.0.2.1'], origin: `${server}:4` }])
  t.strictSame(await inJson('config', 'show', 'log', '--config', folder), [
    { file: 'sternpost', key: 'log.level', value: 'warn', origin: `${server}:5` },
    { file: 'sternpost', key: 'log.recipients', value: 'full', origin: 'default' },
  ])
  t.strictSame(await inJson('config', 'show', 'pools.a', '--config', folder), [
    { file: 'pools', key: 'pools.a.ips[0].address', value: '192.0.2.9', origin: `${join(folder, 'pools.yaml')}:3` },
  ])
  t.strictSame(await inJson('config', 'docs', 'delivery.lease'), {
    file: 'sternpost',
    key: 'delivery.lease',
    text: 'A claimed message is ours so long; more than timeouts.final_dot and 2m.',
    type: 'duration, such as 250ms 30s 15m 2h 1d',
    default: '15m',
    takes_effect: 'restart',
  })
  t.match(await inJson('config', 'docs', 'log.level'), { type: 'debug | info | warn | error', takes_effect: 'reload' })
  t.match(await inJson('config', 'docs', 'warmup.defaults.curve'), { file: 'warmup', default: 'standard' })
  const unknown = await sternpost(['config', 'docs', 'dns.timeot'])
  t.equal(unknown.code, 64)
  t.match(unknown.stderr, 'did you mean dns.timeout?')
})

t.test('every key of the shipped files has a text, a value or keys below it, and a place in its schema', async (t) => {
  const schemas = configurationSchemas(SHIPPED_FOLDER)
  for (const file of FILE_NAMES) {
    const docs = shippedDocs(SHIPPED_FOLDER, file)
    t.same(
      docs.filter(({ text }) => text === '').map(({ path }) => path),
      [],
      `${file}.yaml: each key has a text`,
    )
    t.match(schemas[file], { $schema: /json-schema/, type: 'object', additionalProperties: false, title: /Sternpost$/ })
  }
  const { properties } = schemas.sternpost as { properties: Record<string, { properties: Record<string, object> }> }
  t.same(Object.keys(properties).length > 20, true)
  t.match(properties['delivery']?.properties['lease'], {
    type: 'string',
    pattern: /ms\|s\|m\|h\|d/,
    description: /A claimed message is ours/,
  })
  t.match(properties['log']?.properties['level'], { enum: ['debug', 'info', 'warn', 'error'] })
  t.match(properties['dns']?.properties['tries'], { type: 'integer', minimum: 1, maximum: 10 })
})
