/**
 * Plants each fault of `planted-faults.ts` into a copy of the code, and runs the simulator there until it finds it.
 */
import { execFile } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { PLANTED_FAULTS, type Edit, type PlantedFault } from './planted-faults.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const COPIED = ['src', 'test/simulation', 'test/support', 'test/delivery', 'config', 'package.json']
/** A fault that is not found within so many worlds is a hole in the simulator. */
export const MOST_WORLDS = 500

/** Throws when the text is not there, or more than once. */
export function applyEdit(root: string, { file, from, to }: Edit): void {
  const path = join(root, file)
  const text = readFileSync(path, 'utf8')
  if (text.split(from).length !== 2) throw new Error(`${file} does not hold this once: ${from}`)
  writeFileSync(
    path,
    text.replace(from, () => to),
  )
}

/** The simulator's output on a copy of the code with this fault. */
async function runWith({ edits }: PlantedFault, from: number): Promise<string> {
  const copy = mkdtempSync(join(tmpdir(), 'sternpost-planted-'))
  try {
    for (const part of COPIED) cpSync(join(ROOT, part), join(copy, part), { recursive: true })
    symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'))
    for (const edit of edits) applyEdit(copy, edit)
    const main = join(copy, 'test/simulation/main.ts')
    const options = ['--seeds', String(MOST_WORLDS), '--from', String(from), '--until-found']
    return await new Promise((resolve) => {
      execFile(process.execPath, [main, ...options], { maxBuffer: 2 ** 26 }, (_error, stdout) => resolve(stdout))
    })
  } finally {
    rmSync(copy, { recursive: true })
  }
}

/** How many were not found. */
export async function plantAll(from: number, name: string | undefined): Promise<number> {
  let missed = 0
  for (const fault of PLANTED_FAULTS) {
    if (name !== undefined && !fault.name.includes(name)) continue
    const output = await runWith(fault, from)
    // The first line that names a violation.
    const found = /^VIOLATION of seed (\d+), (\d+) s: (.*)$/m.exec(output)
    if (found === null) missed++
    const worlds = found === null ? '' : `after ${Number(found[1]) - from + 1} worlds: ${found[3]?.slice(0, 100)}`
    const verdict = found === null ? `NOT FOUND in ${MOST_WORLDS} worlds` : 'found'
    process.stdout.write(`${verdict} ${worlds}\n  ${fault.name}\n`)
  }
  return missed
}
