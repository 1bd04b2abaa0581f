/**
 * Prints the manual page sternpost(8), made from the verbs of the command line: what `--help` says is what it says.
 */
import { packageVersion } from '../../src/base/package-version.ts'
import { createProgram } from '../../src/commands/command-line.ts'
import { commandTree, everyCommand, type CommandNode } from '../../src/commands/command-tree.ts'

const SECOND = 1_000
const nothing = async (): Promise<never> => Promise.reject(new Error('no server is started here'))

async function manualPage(): Promise<string> {
  const tree = commandTree(await createProgram(packageVersion(), nothing))
  const verbs = everyCommand(tree).filter(({ path, children }) => path.length > 0 && children.length === 0)
  const date = new Date(Number(process.env['SOURCE_DATE_EPOCH'] ?? 0) * SECOND).toISOString().slice(0, 10)
  return [
    `.TH STERNPOST 8 "${date}" "sternpost ${packageVersion()}" "System administration"`,
    '.SH NAME',
    `sternpost \\- ${roff(tree.description.toLowerCase())}`,
    '.SH SYNOPSIS',
    '.B sternpost',
    '.I verb',
    '.RI [ flags ]',
    '.SH DESCRIPTION',
    ...INTRODUCTION.flatMap((text) => ['.PP', roff(text)]),
    '.SH VERBS',
    ...verbs.flatMap(verbLines),
    '.SH EXIT STATUS',
    ...pairs(EXIT_STATUS),
    '.SH FILES',
    ...pairs(FILES),
    '.SH SEE ALSO',
    '.BR systemctl (1),',
    '.BR journalctl (1)',
    '',
  ].join('\n')
}

const INTRODUCTION = [
  'Sternpost takes mail from your applications, by a REST interface or SMTP submission, and sends it from dedicated IP ' +
    'addresses that it warms up. It runs as the service sternpost, on ports that sternpost.socket opens for it.',
  'On the server the command talks to the service over a Unix socket: root and the group sternpost may use it. From ' +
    'elsewhere it takes --url and --api-key, or the variables STERNPOST_URL and STERNPOST_API_KEY.',
]

const EXIT_STATUS: readonly [string, string][] = [
  ['0', 'done'],
  ['1', 'asked for and refused or failed; of doctor: warnings'],
  ['2', 'of doctor: at least one failure'],
  ['64', 'wrong usage'],
  ['69', 'the server cannot be reached'],
  ['70', 'internal error'],
  ['74', 'file or disk error'],
  ['75', 'try again: busy, time over, port taken'],
  ['77', 'not allowed'],
  ['78', 'the configuration is not valid'],
  ['130', 'interrupted'],
]

const FILES: readonly [string, string][] = [
  ['/etc/sternpost', 'configuration; each key is explained in /usr/share/sternpost/config'],
  ['/var/lib/sternpost', 'database: queued mail, keys, events'],
  ['/run/sternpost/admin.sock', 'where the service takes commands'],
  ['/usr/share/doc/sternpost', 'dashboard, alert rules, licences'],
]

function verbLines({ path, argumentWords, description, options, example }: CommandNode): string[] {
  const words = argumentWords === '' ? '' : ` ${argumentWords}`
  return [
    `.SS "sternpost ${roff(path.join(' ') + words)}"`,
    roff(`${description}.`),
    ...pairs(options.map(({ flags, description: text }) => [flags, text])),
    ...(example === '' ? [] : ['.PP', 'Example:', '.RS', '.nf', ...example.split('\n').map(roff), '.fi', '.RE']),
  ]
}

function pairs(rows: readonly (readonly [string, string])[]): string[] {
  return rows.flatMap(([head, text]) => ['.TP', `.B ${roff(head)}`, roff(text)])
}

/** Text that troff takes literally: no escapes, no hyphens that it would make longer, no request at its beginning. */
function roff(text: string): string {
  const escaped = text.replaceAll('\\', '\\e').replaceAll('-', '\\-').replaceAll('"', '\\(dq')
  return /^[.']/.test(escaped) ? `\\&${escaped}` : escaped
}

process.stdout.write(await manualPage())
