/** `sternpost version`: of Sternpost, and of the Node.js it runs on. */
import type { Command } from 'commander'
import { printResult, type OutputFlags } from './shared/print.ts'
import { addLocalVerb } from './shared/verb.ts'

export function addVersionCommand(program: Command): void {
  const version = program.version()
  addLocalVerb(program, 'version', 'print the versions of Sternpost and of the Node.js it runs on', '--json')
    .option('--json', 'print JSON')
    .action((flags: OutputFlags) => {
      const { versions, platform, arch } = process
      const document = { version, node: versions.node, platform: `${platform}-${arch}` }
      printResult(flags, document, () => `sternpost ${version} (Node.js ${versions.node}, ${document.platform})\n`)
    })
}
