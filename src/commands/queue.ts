/**
 * `posthorn queue explain`: why a message waits, and until when (contract.md 6.3).
 */
import type { Command } from 'commander'
import type { Explanation } from '../messages/explain-message.ts'
import { callServer } from './api-client.ts'
import { explanationReport } from './message-report.ts'
import { pathOf } from './message.ts'
import { printResult } from './print.ts'
import { serverAddress } from './server-address.ts'
import { addVerb, readAnswer } from './verb.ts'
import type { VerbFlags } from './verb.ts'

export function addQueueCommands(program: Command): void {
  const queue = program.command('queue').description('mail that waits')
  addVerb(queue, {
    words: 'explain <id>',
    description: 'say why a message is where it is',
    example: 'posthorn queue explain msg_01kapg6t3vq8x2m5r7w9y4c6de',
  })
    .action(explain)
}

async function explain(id: string, flags: VerbFlags): Promise<void> {
  const answer = await callServer(serverAddress(flags), { method: 'GET', path: `${pathOf(id)}/explain` })
  const explanation = readAnswer<Explanation>(answer, 'message_id', 'summary', 'checks', 'advice')
  printResult(flags, explanation, () => explanationReport(explanation))
}
