/**
 * What keeps the house readable: a citation leads to a heading that is there, a link of a page leads to a file, an
 * exported type has a name of its own, and what is exported is imported somewhere. Each rule is also run on planted
 * mistakes. Who may import whom is held by import-direction.test.ts; lengths and parameters by the linter.
 */
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import t from 'tap'
import { filesBelow, ROOT, SOURCE, specifiersOf, targetOf, type SourceFile } from './support/source-files.ts'

/** Folders of the project that hold text of ours. */
const PLACES = ['src', 'test', 'scripts', 'config', 'systemd']
const ENDINGS = ['.ts', '.md', '.sql', '.yaml', '.sh', '.service', '.socket', '.json', '.py', '.php', '.rb', '.go']
/** It plants mistakes. */
const OWN = 'test/house-rules.test.ts'
const PAGES_AT_THE_ROOT = ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md']

// `delivery/README.md "Retries" and "Path errors"`; a comment may break it over lines.
const CITATION = /([\w./-]*README\.md)((?:,? (?:and )?"[^"\n]{1,60}")+)/g
// A page that only the workshop has.
const FOREIGN_PAGE =
  /\b(?:contract|engine|operations|hardening|libraries|performance|style)\.md\b|service-interface\.txt/i
// [text](target), without pictures' titles.
const LINK = /\]\(([^)\s]+)\)/g
const TYPE_NAME = /^export (?:declare )?(?:interface|type|class|abstract class) (\w+)/gm
const EXPORTED = /^export (?:declare )?(?:async )?(?:const|let|function\*?|class|abstract class|interface|type) (\w+)/gm

const texts: SourceFile[] = [
  ...PLACES.flatMap((place) =>
    filesBelow(join(ROOT, place), ENDINGS).map(({ name, text }) => ({ name: `${place}/${name}`, text })),
  ),
  ...PAGES_AT_THE_ROOT.map((name) => ({ name, text: readFileSync(join(ROOT, name), 'utf8') })),
]

/** Where a cited page is: rooms are named as below `src`, other folders as below the root. */
function pageOf(name: string): string | undefined {
  return [join('src', name), name].find((path) => existsSync(join(ROOT, path)))
}

const withoutMarks = (text: string): string => text.replaceAll(/\s*\n\s*(?:\*|\/\/|#|--)?[ \t]*/g, ' ')

function headingsOf(page: string): Set<string> {
  const text = texts.find(({ name }) => name === page)?.text ?? ''
  return new Set([...text.matchAll(/^#{1,6} (.+)$/gm)].map(([, heading = '']) => heading.replaceAll('`', '').trim()))
}

function brokenCitations({ name, text }: SourceFile, headings = headingsOf): string[] {
  return [...withoutMarks(text).matchAll(CITATION)].flatMap(([, cited = '', list = '']) => {
    const page = pageOf(cited)
    if (page === undefined) return [`${name}: there is no ${cited}`]
    const known = headings(page)
    return [...list.matchAll(/"([^"]+)"/g)]
      .map(([, heading = '']) => heading)
      .filter((heading) => !known.has(heading))
      .map((heading) => `${name}: ${page} has no heading "${heading}"`)
  })
}

function brokenLinks({ name, text }: SourceFile): string[] {
  return [...text.matchAll(LINK)]
    .map(([, target = '']) => target)
    .filter((target) => !/^[a-z]+:/.test(target))
    .filter((target) => !leadsSomewhere(name, target))
    .map((target) => `${name}: ${target} is not there`)
}

function leadsSomewhere(page: string, target: string): boolean {
  const [path = '', anchor] = target.split('#')
  const file = path === '' ? page : join(dirname(page), path)
  if (!existsSync(resolve(ROOT, file))) return false
  return anchor === undefined || [...headingsOf(file)].some((heading) => anchorOf(heading) === anchor)
}

const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replaceAll(/[^\w\- ]/g, '')
    .replaceAll(' ', '-')

function doubledTypes(files: readonly SourceFile[]): string[] {
  const homes = new Map<string, string[]>()
  for (const { name, text } of files) {
    for (const [, type = ''] of text.matchAll(TYPE_NAME)) homes.set(type, [...(homes.get(type) ?? []), name])
  }
  return [...homes].filter(([, files]) => files.length > 1).map(([type, files]) => `${type}: ${files.join(', ')}`)
}

/** Names that a file of `src` exports and no other file of the project names together with that file. */
function unusedExports(files: readonly SourceFile[], users: readonly SourceFile[]): string[] {
  const importers = new Map<string, string[]>()
  for (const { name, text } of users) {
    for (const specifier of specifiersOf(text)) {
      if (!specifier.startsWith('.')) continue
      const target = targetOf(name, specifier)
      importers.set(target, [...(importers.get(target) ?? []), text])
    }
  }
  return files.flatMap(({ name, text }) =>
    [...text.matchAll(EXPORTED)]
      .map(([, exported = '']) => exported)
      .filter((exported) => !(importers.get(name) ?? []).some((user) => new RegExp(`\\b${exported}\\b`).test(user)))
      .map((exported) => `${name} exports ${exported}, which nobody imports`),
  )
}

const ours = filesBelow(SOURCE).map(({ name, text }) => ({ name: `src/${name}`, text }))

t.test('a citation leads to a heading that is there', async (t) => {
  t.same(
    texts.filter(({ name }) => name !== OWN).flatMap((file) => brokenCitations(file)),
    [],
  )
})

t.test('nothing names a page that a clone does not have', async (t) => {
  t.same(
    texts.filter(({ name, text }) => name !== OWN && FOREIGN_PAGE.test(text)).map(({ name }) => name),
    [],
  )
})

t.test('a link of a page leads to a file, and to a heading of it', async (t) => {
  t.same(texts.filter(({ name }) => name.endsWith('.md')).flatMap(brokenLinks), [])
})

t.test('an exported type has a name of its own', async (t) => {
  t.same(doubledTypes(ours), [])
})

t.test('what is exported is imported somewhere', async (t) => {
  const users = texts.filter(({ name }) => name.endsWith('.ts'))
  t.same(
    unusedExports(
      ours.filter(({ name }) => !name.startsWith('src/clients/')),
      users,
    ),
    [],
  )
})

t.test('planted mistakes are found', async (t) => {
  const headings = (): Set<string> => new Set(['Words'])
  const cites = (text: string): string[] => brokenCitations({ name: 'x.ts', text }, headings)
  t.same(cites(' * As it stands in src/README.md "Words".'), [])
  t.same(cites(' * As it stands in src/README.md\n * "Words".'), [])
  t.match(cites('// src/README.md "Words" and "Nothing"'), [/no heading "Nothing"/])
  t.match(cites('// nowhere/README.md "Words"'), [/there is no nowhere/])
  t.match(brokenLinks({ name: 'src/README.md', text: '[a](nothing.md) [b](README.md#no-such) [c](README.md)' }), [
    /nothing\.md/,
    /no-such/,
  ])
  t.match(
    doubledTypes([
      { name: 'a.ts', text: 'export type A = 1' },
      { name: 'b.ts', text: 'export interface A {}' },
    ]),
    ['A: a.ts, b.ts'],
  )
  const unused = unusedExports(
    [{ name: 'src/a.ts', text: 'export const used = 1\nexport const unused = 2' }],
    [{ name: 'src/b.ts', text: `import { used } from './a.ts'` }],
  )
  t.match(unused, [/unused/])
  t.equal(unused.length, 1)
})
