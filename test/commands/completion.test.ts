/** Completion scripts, the manual page and the version: they name every verb there is, and the shells take them. */
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { createProgram } from '../../src/commands/command-line.ts'
import { commandTree, everyCommand } from '../../src/commands/command-tree.ts'
import { completionScript } from '../../src/commands/completion.ts'

const COMMAND = fileURLToPath(new URL('../../scripts/sternpost', import.meta.url))
const MAN_PAGE = fileURLToPath(new URL('../../scripts/package/man-page.ts', import.meta.url))
const nothing = async (): Promise<never> => Promise.reject(new Error('no server is started here'))
const program = await createProgram('1.2.3', nothing)
const commands = everyCommand(commandTree(program)).filter(({ path }) => path.length > 0)

/** Programs that few machines have are asked at the full size alone; the text itself is looked at everywhere. */
const isFull = process.env['TEST_SCALE'] === 'full'

function needs(name: string): { skip: string | false } {
  return { skip: spawnSync(name, ['--version']).error === undefined ? false : `${name} is not there` }
}

t.test('the tree has every verb with its description, flags and an example', async (t) => {
  const paths = commands.map(({ path }) => path.join(' '))
  for (const verb of ['serve', 'queue list', 'ip warmup start', 'domain dkim rotate', 'completion', 'version']) {
    t.ok(paths.includes(verb), verb)
  }
  for (const { path, description, options, children, example } of commands) {
    t.not(description, '', `${path.join(' ')} says what it does`)
    t.ok(
      options.some(({ name }) => name === '--help'),
      `${path.join(' ')} has help`,
    )
    if (children.length === 0) t.not(example, '', `${path.join(' ')} has an example`)
  }
})

t.test('each script names all verbs and flags', async (t) => {
  for (const shell of ['bash', 'zsh', 'fish'] as const) {
    const script = completionScript(program, shell)
    for (const { path, options } of commands) {
      t.ok(script.includes(`' ${path.join(' ')}'`), `${shell}: ${path.join(' ')}`)
      for (const { name } of options) {
        t.ok(script.includes(shell === 'fish' ? name.slice(2) : name), `${shell}: ${name}`)
      }
    }
  }
})

t.test('bash completes verbs, flags and choices', needs('bash'), async (t) => {
  const file = join(t.testdir({}), 'sternpost.bash')
  writeFileSync(file, completionScript(program, 'bash'))
  const complete = (...words: string[]): string[] => {
    const typed = ['sternpost', ...words].map((word) => `'${word}'`).join(' ')
    const asked = `COMP_WORDS=(${typed}); COMP_CWORD=${words.length}; _sternpost`
    const script = `. '${file}'; ${asked}; printf '%s\\n' "\${COMPREPLY[@]}"`
    const { stdout, stderr } = spawnSync('bash', ['--norc', '-c', script], { encoding: 'utf8' })
    t.equal(stderr, '')
    return stdout.split('\n').filter((word) => word !== '')
  }
  t.same(complete('que'), ['queue'])
  t.same(complete('queue', 'rel'), ['release'])
  t.same(complete('ip', 'warmup', 'pau'), ['pause'])
  t.same(complete('version', '--j'), ['--json'])
  t.same(complete('completion', ''), ['bash', 'zsh', 'fish', '--help'])
  t.same(complete('message', '--json', 'sh'), ['show'], 'a flag between verbs is passed over')
})

if (isFull)
  t.test('zsh reads its script', needs('zsh'), async (t) => {
    const { status, stderr } = spawnSync('zsh', ['-n'], { input: completionScript(program, 'zsh'), encoding: 'utf8' })
    t.equal(stderr, '')
    t.equal(status, 0)
  })

if (isFull)
  t.test('fish completes verbs and flags', needs('fish'), async (t) => {
    const home = t.testdir({})
    const file = join(home, 'sternpost.fish')
    writeFileSync(file, completionScript(program, 'fish'))
    const complete = (typed: string): string[] => {
      const { stdout, stderr } = spawnSync('fish', ['--no-config', '-c', `source '${file}'; complete -C '${typed}'`], {
        encoding: 'utf8',
        env: { ...process.env, HOME: home },
      })
      t.equal(stderr, '')
      return stdout
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => line.split('\t')[0] ?? '')
    }
    t.ok(complete('sternpost que').includes('queue'))
    t.same(complete('sternpost queue rel'), ['release'])
    t.ok(complete('sternpost version --j').includes('--json'))
  })

t.test('the manual page names all verbs', async (t) => {
  const { stdout, stderr } = spawnSync(process.execPath, [MAN_PAGE], { encoding: 'utf8' })
  t.equal(stderr, '')
  for (const { path, children } of commands) {
    if (children.length === 0) t.match(stdout, `.SS "sternpost ${path.join(' ').replaceAll('-', '\\-')}`)
  }
})

if (isFull)
  t.test('troff has nothing to say against the manual page', needs('man'), async (t) => {
    const { stdout } = spawnSync(process.execPath, [MAN_PAGE], { encoding: 'utf8' })
    const file = join(t.testdir({}), 'sternpost.8')
    writeFileSync(file, stdout)
    const env = { ...process.env, MANWIDTH: '100' }
    const shown = spawnSync('man', ['--warnings', '--local-file', file], { encoding: 'utf8', env })
    t.equal(shown.stderr, '')
    t.match(shown.stdout, 'sternpost queue list')
  })

t.test('the version is that of the package, as text and as JSON', async (t) => {
  const run = (...words: string[]) => spawnSync('sh', [COMMAND, ...words], { encoding: 'utf8' })
  const text = run('version')
  t.match(text.stdout, /^sternpost \d+\.\d+\.\d+ \(Node\.js \d+\.\d+\.\d+, linux-x64\)\n$/)
  const json = run('version', '--json')
  t.same(Object.keys(JSON.parse(json.stdout)), ['version', 'node', 'platform'])
})
