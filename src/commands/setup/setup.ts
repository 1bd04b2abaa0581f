/**
 * `sternpost setup`: from an installed package to a server that takes mail (systemd/README.md "Install").
 *
 * 1. The answers: from flags, or asked for on a terminal (`answers.ts`).
 * 2. All files are made and read as the server would read them; ports, reverse names and port 25 are looked at.
 * 3. The files are put in place together, the units started; when the server does not come up, both are taken back.
 * 4. Over the admin socket: the first domain, the first key.
 * 5. DNS records, a zone file, the key (once); the certificate, a link to the console, each record as it is found in the
 *    DNS, the first mail (`finish.ts`); the next command.
 *
 * Running it again changes nothing that is right already, and says so. Exit: 64 for missing answers, 77 without the
 * rights, 78 for files that the server would refuse, 1 when it did not start, 130 when it was interrupted.
 */
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Command } from 'commander'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { collect, configurationFolder, durationFlag, PRODUCTION_FOLDER } from '../shared/flag-values.ts'
import { jsonText } from '../shared/text.ts'
import { CONFIG_FLAG } from '../shared/verb.ts'
import { setupAnswers, type SetupFlags } from './answers.ts'
import { carryOut } from './carry-out.ts'
import { differences } from './differences.ts'
import { CERTIFICATE, stageFiles } from './files.ts'
import { leadsHere } from './leads-here.ts'
import { createSetupNotes } from './report.ts'
import { systemd } from './units.ts'

interface SetupCommandFlags extends SetupFlags {
  config?: string
  log: string
  json?: boolean
  console: boolean
  wait?: string
}

const FOREVER = Number.MAX_SAFE_INTEGER
const LOG_FILE = '/var/log/sternpost-setup.log'

export function addSetupCommand(program: Command): void {
  program
    .command('setup')
    .description('write the configuration, start the server, make the first domain and key, print the DNS records')
    .option('--hostname <name>', 'mail host name of this server, e.g. mail.example.net')
    .option('--domain <name>', 'first sending domain')
    .option('--operator-email <address>', 'gets alerts')
    .option('--ip <address>', 'address that mail leaves from; repeat for several; behind NAT: public=inner', collect)
    .option('--acme [authority]', 'certificates by themselves: letsencrypt, letsencrypt-staging or a URL (usual here)')
    .option('--no-acme', 'a self-signed certificate, until you put another one in its place')
    .option('--acme-ca-file <file>', 'PEM file that vouches for an authority of your own')
    .option('--no-console', 'no link to the console')
    .option('--wait <duration>', 'look for the DNS records at most this long (on a terminal: until Ctrl-C)')
    .option('--warmed', 'the addresses have sent such mail before: no warmup')
    .option('--yes', 'do not ask whether to go on; take the public addresses of this machine')
    .option(...CONFIG_FLAG)
    .option('--log <file>', 'what is printed also goes here, without the key', LOG_FILE)
    .option('--json', 'print one JSON document')
    .addHelpText(
      'after',
      '\nExample:\n  sudo sternpost setup\n  sudo sternpost setup --yes --hostname mail.acme.com ' +
        '--domain acme.com --operator-email ada@acme.com',
    )
    .action(setup)
}

async function setup(flags: SetupCommandFlags): Promise<void> {
  const folder = resolve(configurationFolder(flags.config))
  if (folder === PRODUCTION_FOLDER && process.getuid?.() !== 0) {
    throw new ProcessExit(
      EXIT.notAllowed,
      `sternpost: ${folder} is root's. Fix: sudo sternpost setup, with the same flags`,
    )
  }
  const has = (name: string): boolean => existsSync(join(folder, name))
  const needed = { server: !has('sternpost.yaml'), ips: !has('pools.yaml'), certificates: !has(CERTIFICATE) }
  const answers = await setupAnswers(flags, needed, (hostname, ips) => leadsHere(folder, hostname, ips))
  const mostWait = flags.wait === undefined ? null : durationFlag('--wait', flags.wait)
  // With --json the key is in the document alone.
  const isDocument = flags.json === true
  const screen = isDocument ? process.stderr : process.stdout
  const notes = createSetupNotes(flags.log, (text) => void screen.write(text), !isDocument)
  try {
    const isWarmed = flags.warmed === true
    const files = stageFiles({ folder, answers, isWarmed })
    const unheard = differences(answers, isWarmed, files.configuration)
    const { domain } = answers
    const ending = { withConsole: flags.console, waitMilliseconds: mostWait ?? (process.stdin.isTTY ? FOREVER : 0) }
    const result = await carryOut({ folder, files, notes, unheard, domain, systemd, ending })
    if (isDocument) process.stdout.write(jsonText(result))
  } finally {
    notes.close()
  }
}
