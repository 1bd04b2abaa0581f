/** `sternpost serve`: runs the server until SIGTERM or SIGINT. */
import type { Command } from 'commander'
import { configurationFolder, SHIPPED_FOLDER } from '../shared/shared-options.ts'

export interface ServeOptions {
  folder: string
  shippedFolder: string
}

interface ServeFlags {
  config?: string
}

export function addServeCommand(program: Command, serve: (options: ServeOptions) => Promise<void>): void {
  program
    .command('serve')
    .description('run the server')
    .option('--config <dir>', 'folder of the configuration files')
    .addHelpText('after', '\nExample:\n  sternpost serve --config /etc/sternpost')
    .action(async (flags: ServeFlags) =>
      serve({ folder: configurationFolder(flags.config), shippedFolder: SHIPPED_FOLDER }),
    )
}
