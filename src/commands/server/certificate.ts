/**
 * `sternpost certificate`: the certificates of our doors, and a renewal by hand (certificates/README.md). Keys are never
 * shown.
 */
import type { Command } from 'commander'
import { certificatesSchema, renewingCertificateSchema, type CertificateJson } from '../../api/server.ts'
import { ask } from '../shared/api-client.ts'
import { commandText } from '../shared/command-text.ts'
import { printList, printNote, printResult } from '../shared/print.ts'
import { localTime, type Columns } from '../shared/text.ts'
import { addVerb, type VerbFlags } from '../shared/verb.ts'

const PATH = '/v1/admin/certificates'

export function addCertificateCommands(program: Command): void {
  const certificate = program.command('certificate').description('certificates of the doors')
  addVerb(certificate, 'list', 'list them: until when they hold, and what is wrong').action(list)
  addVerb(certificate, 'renew <name>', 'order another one now, before its time', 'mail.acme.com')
    .option('--new-key', 'with another key, also where tls.acme.keep_key has the same')
    .action(renew)
}

const COLUMNS: Columns<CertificateJson> = {
  NAME: ({ name, names }) => [name, ...names.filter((each) => each !== name)].join(', '),
  FROM: ({ authority, file }) => [authority, file].filter((part) => part !== null).join(', '),
  ENDS: ({ ends_at: at }) => (at === null ? 'none yet' : localTime(at)),
  RENEWS: ({ renews_at: at }) => (at === null ? '' : localTime(at)),
  PROBLEM: ({ problem }) => problem ?? '',
}

async function list(flags: VerbFlags): Promise<void> {
  const { certificates } = await ask(flags, certificatesSchema, `GET ${PATH}`)
  printList(flags, COLUMNS, certificates, 'No certificate. Let them come by themselves: tls.acme in sternpost.yaml')
  for (const { name, problem, fix, next_try_at: next } of certificates) {
    if (problem === null) continue
    const now = commandText(flags, { verb: 'certificate renew', arguments: [name] })
    const again = next === null ? [] : [`it is tried again at ${localTime(next)}, or, once mended, by: ${now}`]
    printNote(flags, `${name}: ${[problem, ...(fix === null ? [] : [`fix: ${fix}`]), ...again].join('; ')}`)
  }
}

async function renew(name: string, flags: VerbFlags & { newKey?: boolean }): Promise<void> {
  const path = `${PATH}/${encodeURIComponent(name)}/renew` as const
  const begun = await ask(flags, renewingCertificateSchema, `POST ${path}`, { new_key: flags.newKey ?? false })
  printResult(flags, begun, () => `${name}: another certificate is ordered\n`)
  printNote(flags, `Whether it is there: ${commandText(flags, { verb: 'certificate list' })}`)
}
