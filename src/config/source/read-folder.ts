/**
 * The files of a configuration folder, each with its drop-ins and what variables say, as one tree per file. One that is
 * not there is taken from the shipped folder; one with mistakes gives no tree. Throws ConfigurationError when there is
 * no such folder, unless variables say what an administrator has to write.
 *
 * A link that leads nowhere is an error, not a file that is not there: where the files of a release are linked, its pools
 * would vanish between two of them.
 */
import { lstatSync, readdirSync, readlinkSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { readRegularFile } from '../../base/regular-file.ts'
import { ConfigurationError, errorCode, errorText, type Mistake } from '../../base/errors.ts'
import { mergeDropIns } from './drop-ins.ts'
import { FILE_NAMES, type FileName, type Trees } from './finding.ts'
import { standInFor, unknownVariables, withVariables, type Environment } from './environment.ts'
import { nodeAt, pathText, textAt } from './at-path.ts'
import { emptyMap, withValueAt, type SourceNode } from './source-tree.ts'
import { readYamlSource } from './yaml-source.ts'
import { nearestName } from '../settings/nearest-name.ts'
import { didYouMean } from './explain-mistake.ts'

/** Written by the administrator; the shipped ones are for trying out. */
const WRITTEN_BY_ADMINISTRATOR: readonly FileName[] = ['sternpost', 'pools']
const NO_FOLDER =
  'there is no such folder; make it with sternpost.yaml and pools.yaml, name another with --config, ' +
  'or say by STERNPOST_HOSTNAME and STERNPOST_IPS what is needed'

const NOT_THERE = 'there is no such file'

/** A warning: the shipped file stands in the place of one that an administrator writes. */
export function isShippedInPlace({ severity, message }: Mistake): boolean {
  return severity === 'warning' && message.startsWith(NOT_THERE)
}

/** `names`: the files that are wanted; the others have no tree. */
export function readFolder(folder: string, shippedFolder: string, names: readonly FileName[] = FILE_NAMES) {
  // What is read from the shipped folder alone is for trying out, with an outside world of its own.
  const environment: Environment = folder === shippedFolder ? {} : process.env
  const isFolder = statSync(folder, { throwIfNoEntry: false })?.isDirectory() === true
  const isNeeded = standInFor('sternpost', environment) === undefined
  if (!isFolder && (isNeeded || isThere(folder))) {
    throw new ConfigurationError([wholeFile(folder, 'error', leadsNowhere(folder) ?? NO_FOLDER)])
  }
  const mistakes = [...unknownVariables(environment), ...misnamed(folder)]
  const trees: Trees = {}
  for (const name of names) {
    const countBefore = errorsIn(mistakes)
    const hostname = trees.sternpost && textAt(trees.sternpost, ['hostname'])
    const base = readBase(name, { folder, shippedFolder, environment, hostname, mistakes })
    const dropIns = dropInFiles(join(folder, `${name}.d`), mistakes).map((file) => readFile(file, mistakes))
    const tree = mergeDropIns(base, dropIns)
    if (errorsIn(mistakes) === countBefore) {
      trees[name] = name === 'sternpost' ? withVariables(withoutUnused(tree, mistakes), environment) : tree
    }
  }
  return { trees, mistakes }
}

/** Files and folders whose names are nearly those that are read, such as `pools.yml` and `pool.d`. */
function misnamed(folder: string): Mistake[] {
  const ours = FILE_NAMES.flatMap((name) => [`${name}.yaml`, `${name}.d`])
  return listed(folder).flatMap((name) => {
    const meant = /\.(ya?ml|d)$/.test(name) && !ours.includes(name) ? nearestName(name, ours) : null
    if (meant === null) return []
    return [wholeFile(join(folder, name), 'warning', `is not read${didYouMean(meant)}`)]
  })
}

/** Empty for a folder that is not there, or that may not be listed. */
function listed(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    // Files that cannot be read say so themselves.
    return []
  }
}

interface Places {
  folder: string
  shippedFolder: string
  environment: Environment
  hostname: string | undefined
  mistakes: Mistake[]
}

/** The file of the folder, else what variables say in its place, else the shipped one. */
function readBase(name: FileName, { folder, shippedFolder, environment, hostname, mistakes }: Places): SourceNode {
  const own = join(folder, `${name}.yaml`)
  const shipped = join(shippedFolder, `${name}.yaml`)
  const standIn = standInFor(name, environment, hostname)
  if (own === shipped || isThere(own)) {
    if (standIn !== undefined && name === 'pools') {
      const message = `is not used: the IPs stand in ${own}`
      mistakes.push({ ...standIn.position, path: '', severity: 'warning', message, suggestion: null })
    }
    return readFile(own, mistakes)
  }
  if (standIn !== undefined) return standIn
  if (WRITTEN_BY_ADMINISTRATOR.includes(name)) {
    const fix = 'write it, or let `sternpost setup` do that'
    mistakes.push(wholeFile(own, 'warning', `${NOT_THERE}: ${fix}; ${shipped}, for trying out, is used in its place`))
  }
  return readFile(shipped, mistakes)
}

function readFile(file: string, mistakes: Mistake[]): SourceNode {
  try {
    const reading = readYamlSource(file, readRegularFile(file))
    if (reading.kind === 'read') return reading.tree
    mistakes.push(...reading.mistakes)
  } catch (thrown) {
    const isMissing = errorCode(thrown) === 'ENOENT'
    const problem = isMissing ? missingFile(file) : `cannot be read: ${errorText(thrown)}`
    mistakes.push(wholeFile(file, 'error', problem))
  }
  return emptyMap({ file, line: 1, column: 1 })
}

/** Keys that never did anything, with what says it in their place. */
const UNUSED = [
  { section: 'delivery', key: 'idle_connection', instead: '`idle` of providers.yaml says how long a connection waits' },
  { section: 'storage', key: 'postgres', instead: '`storage.url` says where PostgreSQL is' },
]

/** Files that have such keys from a version before are taken all the same. */
function withoutUnused(tree: SourceNode, mistakes: Mistake[]): SourceNode {
  return UNUSED.reduce((left, { section: name, key, instead }) => {
    const section = nodeAt(left, [name])
    const unused = section?.kind === 'map' ? section.entries.get(key) : undefined
    if (section?.kind !== 'map' || unused === undefined) return left
    const message = `is not used; ${instead}`
    mistakes.push({
      ...unused.keyPosition,
      path: pathText([name, key]),
      severity: 'warning',
      message,
      suggestion: null,
    })
    const entries = new Map(section.entries)
    entries.delete(key)
    return withValueAt(left, [name], { ...section, entries })
  }, tree)
}

function dropInFiles(folder: string, mistakes: Mistake[]): string[] {
  const files: string[] = []
  for (const name of namesIn(folder, mistakes).toSorted()) {
    const file = join(folder, name)
    // Two digits, a hyphen, a name: the digits say the order.
    if (/^\d\d-.+\.yaml$/.test(name)) files.push(file)
    // A dot file such as .gitkeep is nobody's drop-in.
    else if (!name.startsWith('.')) {
      mistakes.push(wholeFile(file, 'warning', 'is not read; a drop-in is named like 20-name.yaml'))
    }
  }
  return files
}

function namesIn(folder: string, mistakes: Mistake[]): string[] {
  try {
    return readdirSync(folder)
  } catch (thrown) {
    const isMissing = errorCode(thrown) === 'ENOENT'
    if (isMissing && !isThere(folder)) return []
    const problem = (isMissing ? leadsNowhere(folder) : null) ?? `cannot be read: ${errorText(thrown)}`
    mistakes.push(wholeFile(folder, 'error', problem))
    return []
  }
}

/** Also a link, wherever it leads, and what may not be looked at: reading it says what is wrong. */
function isThere(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) !== undefined
  } catch {
    return true
  }
}

function missingFile(file: string): string {
  return leadsNowhere(file) ?? NOT_THERE
}

/** null: it is no link, or may not be looked at. */
function leadsNowhere(path: string): string | null {
  try {
    const isLink = lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true
    return isLink ? `is a link that leads nowhere: ${readlinkSync(path)}` : null
  } catch {
    return null
  }
}

function errorsIn(mistakes: Mistake[]): number {
  return mistakes.filter(({ severity }) => severity === 'error').length
}

function wholeFile(file: string, severity: Mistake['severity'], message: string): Mistake {
  return { file, line: 1, column: 1, path: '', severity, message, suggestion: null }
}
