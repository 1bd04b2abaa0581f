/**
 * The files of the console as browsers take them: types stripped from `src/console`, imports by relative names that
 * hold a hash of the content, compressed once. Made at the first request and kept; each file in a turn of its own, so
 * that nobody waits. Rejects when a file cannot be read.
 */
import { hash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { stripTypeScriptTypes } from 'node:module'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { brotliCompress, gzip } from 'node:zlib'

export interface Asset {
  contentType: string
  bytes: Buffer
  /** By Content-Encoding. */
  encoded: Readonly<Record<'br' | 'gzip', Buffer>>
}

export interface ConsoleAssets {
  /** By name, e.g. `main-1a2b3c4d5e.js`. */
  files: ReadonlyMap<string, Asset>
  /** Names. */
  script: string
  style: string
  /** Of the page to log in. */
  login: string
  /** What the screen of this name needs, and every screen; of an unknown one only the latter. */
  preloadsOf(screen: string): readonly string[]
}

const SOURCES = new URL('../../console/', import.meta.url)
/** What follows `from`, `import` or `import(`: the place of the module. */
const IMPORTS = /(\bfrom\s*|\bimport\s*\(?\s*)(["'])([\w@./-]+)\2/g
const HASH_CHARACTERS = 12

/** Reads the console once; whoever asks later gets the same. After a failure whoever asks next reads it again. */
export function createConsoleAssets(sources = SOURCES): () => Promise<ConsoleAssets> {
  let made: Promise<ConsoleAssets> | undefined
  return () => {
    made ??= makeAssets(sources).catch((thrown: unknown) => {
      made = undefined
      throw thrown
    })
    return made
  }
}

async function makeAssets(sources: URL): Promise<ConsoleAssets> {
  const urlOf = (file: string): string => new URL(file, sources).href
  const files = new Map<string, Asset>()
  const builder = createBuilder(files)
  const script = await builder.module(urlOf('main.ts'))
  const style = urlOf('console.css')
  const { name: styleName } = await builder.add(style, 'css', await readFile(fileURLToPath(style), 'utf8'))
  const login = await builder.module(urlOf('login.ts'))
  const preloadsOf = (screen: string): string[] => {
    const needs = builder.needsOf(urlOf(`screens/${screen}.ts`))
    return [...new Set([...script.needs, ...needs])]
  }
  return { files, login: login.name, script: script.name, style: styleName, preloadsOf }
}

interface BuiltModule {
  name: string
  /** Names of the modules that are loaded with it, without those that are asked for later. */
  needs: ReadonlySet<string>
}

function createBuilder(files: Map<string, Asset>) {
  /** null: being built. */
  const built = new Map<string, BuiltModule | null>()

  const add = async (url: string, kind: 'js' | 'css', text: string): Promise<BuiltModule> => {
    const bytes = Buffer.from(text)
    const stem = url
      .slice(url.lastIndexOf('/') + 1)
      .replace(/\.\w+$/, '')
      .replaceAll('.', '-')
    const name = `${stem}-${hash('sha256', bytes, 'base64url').slice(0, HASH_CHARACTERS)}.${kind}`
    const [br, gz] = await Promise.all([promisify(brotliCompress)(bytes), promisify(gzip)(bytes)])
    const contentType = kind === 'js' ? 'text/javascript; charset=utf-8' : 'text/css; charset=utf-8'
    files.set(name, { contentType, bytes, encoded: { br, gzip: gz } })
    return { name, needs: new Set([name]) }
  }

  const build = async (url: string): Promise<BuiltModule> => {
    await nextTurn()
    const text = withoutTypes(url, await readFile(fileURLToPath(url), 'utf8'))
    const names = new Map<string, string>()
    const needs = new Set<string>()
    for (const [, keyword = '', , specifier = ''] of text.matchAll(IMPORTS)) {
      const target = await module(resolve(specifier, url))
      names.set(specifier, target.name)
      // What is imported by a call is loaded when it is needed.
      if (!keyword.includes('(')) for (const name of target.needs) needs.add(name)
    }
    const rewritten = text.replaceAll(
      IMPORTS,
      (_all, keyword: string, quote: string, specifier: string) =>
        `${keyword}${quote}./${names.get(specifier)}${quote}`,
    )
    const made = await add(url, 'js', rewritten.replace(/^\/\/# sourceMappingURL=.*$/m, ''))
    return { name: made.name, needs: new Set([...needs, made.name]) }
  }

  /** One after the other, so that what is being built is what asks: a circle has no first name. */
  const module = async (url: string): Promise<BuiltModule> => {
    const known = built.get(url)
    if (known === null) throw new Error(`modules of the console import each other in a circle: ${url}`)
    if (known !== undefined) return known
    built.set(url, null)
    const made = await build(url)
    built.set(url, made)
    return made
  }

  return { module, add, needsOf: (url: string): readonly string[] => [...(built.get(url)?.needs ?? [])] }
}

/** A file of ours by its place, a package by its name. */
function resolve(specifier: string, from: string): string {
  return specifier.startsWith('.') ? new URL(specifier, from).href : import.meta.resolve(specifier)
}

/** Comments stay out too: they are for readers of the sources. */
function withoutTypes(url: string, text: string): string {
  if (!url.endsWith('.ts')) return text
  return withoutWarning(() => stripTypeScriptTypes(text, { mode: 'strip' }))
    .replaceAll(/^\s*\/\*\*[\s\S]*?\*\/\s*$/gm, '')
    .replaceAll(/^\s*\/\/.*$/gm, '')
    .replaceAll(/[ \t]+$/gm, '')
    .replaceAll(/\n{2,}/g, '\n')
}

/** That stripping types is experimental in Node 24 is of no use to whoever reads the log. */
function withoutWarning<Result>(run: () => Result): Result {
  const { emitWarning } = process
  process.emitWarning = () => {}
  try {
    return run()
  } finally {
    process.emitWarning = emitWarning
  }
}
