/** `sternpost version`: what runs here. */
import type { Command } from 'commander'
import { printResult, type OutputFlags } from '../shared/print.ts'

export function addVersionCommand(program: Command, version: string): void {
  program
    .command('version')
    .description('print the versions of Sternpost and of the Node.js it runs on')
    .option('--json', 'print JSON')
    .addHelpText('after', '\nExample:\n  sternpost version --json')
    .action((flags: OutputFlags) => {
      const { versions, platform, arch } = process
      const document = { version, node: versions.node, platform: `${platform}-${arch}` }
      printResult(flags, document, () => `sternpost ${version} (Node.js ${versions.node}, ${document.platform})\n`)
    })
}
