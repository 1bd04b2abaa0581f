/**
 * How long the threads of a server are busy at a time: the server is started with `environment`, and from `begin` on the
 * longest turn of each thread is kept, in time of the processor.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { temporaryFolder, type Teardown } from './sandbox-process.ts'

const WATCH = new URL('./watch-threads.ts', import.meta.url)

export function watchThreads(t: Teardown) {
  const folder = temporaryFolder(t)
  return {
    environment: { NODE_OPTIONS: `--import=${WATCH.href}`, WATCH_FOLDER: folder },
    /** What was done before, as loading all the code, does not count. */
    begin: () => writeFileSync(join(folder, 'begin'), ''),
    /** Of each thread its name and milliseconds: `main 41`. */
    longest: (): string[] =>
      readdirSync(folder)
        .filter((name) => /^\d+-\d+$/.test(name))
        .map((name) => readFileSync(join(folder, name), 'utf8')),
  }
}
