/**
 * The files of a configuration folder, each with its drop-ins, as one tree per file. One that is not there is taken
 * from the shipped folder; one with mistakes gives no tree. Throws ConfigurationError when there is no such folder.
 */
import { existsSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { readRegularFile } from '../../base/regular-file.ts'
import { ConfigurationError, errorCode, errorText, type Mistake } from '../../base/errors.ts'
import { mergeDropIns } from './drop-ins.ts'
import { FILE_NAMES, type FileName, type Trees } from './finding.ts'
import { emptyMap, type SourceNode } from './source-tree.ts'
import { readYamlSource } from './yaml-source.ts'

/** Written by the administrator; the shipped ones are for trying out. */
const WRITTEN_BY_ADMINISTRATOR: readonly FileName[] = ['sternpost', 'pools']
const NO_FOLDER = 'there is no such folder; make it with sternpost.yaml and pools.yaml, or name another with --config'

/** `names`: the files that are wanted; the others have no tree. */
export function readFolder(folder: string, shippedFolder: string, names: readonly FileName[] = FILE_NAMES) {
  const isFolder = statSync(folder, { throwIfNoEntry: false })?.isDirectory() === true
  if (!isFolder) throw new ConfigurationError([wholeFile(folder, 'error', NO_FOLDER)])
  const mistakes: Mistake[] = []
  const trees: Trees = {}
  for (const name of names) {
    const countBefore = errorsIn(mistakes)
    const base = readFile(chooseFile(name, { folder, shippedFolder, mistakes }), mistakes)
    const dropIns = dropInFiles(join(folder, `${name}.d`), mistakes).map((file) => readFile(file, mistakes))
    if (errorsIn(mistakes) === countBefore) trees[name] = mergeDropIns(base, dropIns)
  }
  return { trees, mistakes }
}

function chooseFile(name: FileName, place: { folder: string; shippedFolder: string; mistakes: Mistake[] }): string {
  const own = join(place.folder, `${name}.yaml`)
  const shipped = join(place.shippedFolder, `${name}.yaml`)
  if (own === shipped || existsSync(own)) return own
  if (WRITTEN_BY_ADMINISTRATOR.includes(name)) {
    place.mistakes.push(wholeFile(own, 'warning', `there is no such file; ${shipped} is used in its place`))
  }
  return shipped
}

function readFile(file: string, mistakes: Mistake[]): SourceNode {
  try {
    const reading = readYamlSource(file, readRegularFile(file))
    if (reading.kind === 'read') return reading.tree
    mistakes.push(...reading.mistakes)
  } catch (thrown) {
    const problem = errorCode(thrown) === 'ENOENT' ? 'there is no such file' : `cannot be read: ${errorText(thrown)}`
    mistakes.push(wholeFile(file, 'error', problem))
  }
  return emptyMap({ file, line: 1, column: 1 })
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
    if (errorCode(thrown) === 'ENOENT') return []
    mistakes.push(wholeFile(folder, 'error', `cannot be read: ${errorText(thrown)}`))
    return []
  }
}

function errorsIn(mistakes: Mistake[]): number {
  return mistakes.filter(({ severity }) => severity === 'error').length
}

function wholeFile(file: string, severity: Mistake['severity'], message: string): Mistake {
  return { file, line: 1, column: 1, path: '', severity, message, suggestion: null }
}
