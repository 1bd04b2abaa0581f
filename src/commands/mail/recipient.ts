/** `sternpost recipient`: what is stored about an address, and its erasure (messages/README.md "Privacy"). */
import type { ErasedRecipientJson, RecipientDataJson } from '../../api/server.ts'
import type { Command } from 'commander'
import { callServer, withQuery } from '../shared/api-client.ts'
import { printNote, printResult, sheetText } from '../shared/print.ts'
import { serverAddress } from '../shared/server-address.ts'
import { addVerb, isConfirmed, readAnswer, type ConsentFlags, type VerbFlags } from '../shared/verb.ts'

export function addRecipientCommands(program: Command): void {
  const recipient = program.command('recipient').description('what is stored about one address')
  addVerb(recipient, {
    words: 'export <address>',
    description: 'print everything that is stored about an address, as JSON',
    example: 'sternpost recipient export ada@example.com > ada.json',
  }).action(exportAll)
  addVerb(recipient, {
    words: 'erase <address>',
    description: 'replace an address wherever it is stored; nothing is sent to it any more',
    example: 'sternpost recipient erase ada@example.com --yes',
  })
    .option('--yes', 'do it')
    .action(erase)
}

const pathOf = (address: string): string => `/v1/admin/recipients/${encodeURIComponent(address)}`

async function readAll(address: string, flags: VerbFlags): Promise<{ messages: object[]; suppressions: object[] }> {
  const server = serverAddress(flags)
  const messages: object[] = []
  const suppressions: object[] = []
  let after: string | undefined
  do {
    const path = withQuery(pathOf(address), { after })
    const answer = await callServer(server, { method: 'GET', path })
    const page = readAnswer<RecipientDataJson>(answer, 'messages', 'suppressions')
    messages.push(...page.messages)
    suppressions.push(...page.suppressions)
    after = page.next_cursor ?? undefined
  } while (after !== undefined)
  return { messages, suppressions }
}

async function exportAll(address: string, flags: VerbFlags): Promise<void> {
  const stored = await readAll(address, flags)
  const document = { address, ...stored }
  printResult(flags, document, () => `${JSON.stringify(document, null, 2)}\n`)
  printNote(flags, `${stored.messages.length} messages, ${stored.suppressions.length} entries of the suppression list.`)
}

async function erase(address: string, flags: ConsentFlags): Promise<void> {
  if (flags.yes !== true) {
    const { messages, suppressions } = await readAll(address, flags)
    const text = `${messages.length} messages to ${address} would lose it, and those that wait be canceled`
    const document = { address, messages: messages.length, suppressions: suppressions.length }
    isConfirmed(flags, { document, text, command: `sternpost recipient erase ${address}` })
    return
  }
  const call = { method: 'POST' as const, path: `${pathOf(address)}/erase`, body: {} }
  const erased = readAnswer<ErasedRecipientJson>(
    await callServer(serverAddress(flags), call),
    'messages',
    'canceled',
    'sending',
  )
  printResult(flags, erased, () =>
    sheetText(`${address}  erased`, [
      ['messages', `${erased.messages}, ${erased.canceled} of them canceled`],
      ['other rows', String(erased.others)],
      ['being sent', erased.sending === 0 ? null : `${erased.sending}, and left: erase once more in some minutes`],
    ]),
  )
  printNote(flags, 'Logs and earlier backups are not changed. The suppression list keeps the address as a keyed hash.')
}
