/** `sternpost recipient`: what is stored about an address, and its erasure (messages/README.md "Privacy"). */
import type { Command } from 'commander'
import { erasedRecipientSchema, recipientDataSchema, type RecipientDataJson } from '../../api/server.ts'
import { ask, callServer, LONG_PATIENCE, readAnswer, withQuery, type ApiPath } from '../shared/api-client.ts'
import { printNote, printResult } from '../shared/print.ts'
import { jsonText, sheetText } from '../shared/text.ts'
import { serverAddress } from '../shared/server-address.ts'
import { addVerb, isConfirmed, type ConsentFlags, type VerbFlags } from '../shared/verb.ts'

export function addRecipientCommands(program: Command): void {
  const recipient = program.command('recipient').description('what is stored about one address')
  const exported = 'print everything that is stored about an address, as JSON'
  addVerb(recipient, 'export <address>', exported, 'ada@example.com > ada.json').action(exportAll)
  const erased = 'replace an address wherever it is stored; nothing is sent to it any more'
  addVerb(recipient, 'erase <address>', erased, 'ada@example.com --yes').option('--yes', 'do it').action(erase)
}

const pathOf = (address: string): ApiPath => `/v1/admin/recipients/${encodeURIComponent(address)}`

async function readAll(address: string, flags: VerbFlags): Promise<Omit<RecipientDataJson, 'next_cursor'>> {
  const server = serverAddress(flags)
  const [messages, suppressions]: [RecipientDataJson['messages'], RecipientDataJson['suppressions']] = [[], []]
  let after: string | undefined
  do {
    const page = await ask(server, recipientDataSchema, `GET ${withQuery(pathOf(address), { after })}`)
    messages.push(...page.messages)
    suppressions.push(...page.suppressions)
    after = page.next_cursor ?? undefined
  } while (after !== undefined)
  return { messages, suppressions }
}

async function exportAll(address: string, flags: VerbFlags): Promise<void> {
  const stored = await readAll(address, flags)
  const document = { address, ...stored }
  printResult(flags, document, () => jsonText(document, 2))
  printNote(flags, `${stored.messages.length} messages, ${stored.suppressions.length} entries of the suppression list.`)
}

async function erase(address: string, flags: ConsentFlags): Promise<void> {
  if (flags.yes !== true) {
    const { messages, suppressions } = await readAll(address, flags)
    const text = `${messages.length} messages to ${address} would lose it, and those that wait be canceled`
    const document = { address, messages: messages.length, suppressions: suppressions.length }
    isConfirmed(flags, { document, text, command: { verb: 'recipient erase', arguments: [address] } })
    return
  }
  const answer = await callServer(flags, `POST ${pathOf(address)}/erase`, { body: {}, patience: LONG_PATIENCE })
  const erased = readAnswer(erasedRecipientSchema, answer)
  printResult(flags, erased, () =>
    sheetText(`${address}  erased`, [
      ['messages', `${erased.messages}, ${erased.canceled} of them canceled`],
      ['other rows', String(erased.others)],
      ['being sent', erased.sending === 0 ? null : `${erased.sending}, and left: erase once more in some minutes`],
    ]),
  )
  printNote(flags, 'Logs and earlier backups are not changed. The suppression list keeps the address as a keyed hash.')
}
