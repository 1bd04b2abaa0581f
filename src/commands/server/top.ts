/**
 * `sternpost top`: the status again and again, with what happened between two looks. On a terminal the screen is drawn
 * anew; else each look is a line of JSON, or a block of text. Ends when interrupted, or when the server is gone (69).
 */
import type { Command } from 'commander'
import { SECOND, systemClock } from '../../base/clock.ts'
import { durationFlag } from '../shared/flag-values.ts'
import { isTerminal, printPiece } from '../shared/print.ts'
import { serverAddress } from '../shared/server-address.ts'
import { readStatus, statusText, type StatusView } from './status.ts'
import { pause, untilInterrupted } from '../shared/until-interrupted.ts'
import { addVerb, type VerbFlags } from '../shared/verb.ts'

/** From the top left corner, all behind it erased. */
const REDRAW = '\u001b[H\u001b[J'

export function addTopCommand(program: Command): void {
  addVerb(program, {
    words: 'top',
    description: 'watch how the server is, until interrupted',
    example: 'sternpost top --interval 5s',
  })
    .option('--interval <duration>', 'time between two looks', '2s')
    .action(top)
}

async function top(flags: VerbFlags & { interval: string }): Promise<void> {
  const interval = durationFlag('--interval', flags.interval)
  const server = serverAddress(flags)
  const signal = untilInterrupted()
  let before: StatusView | null = null
  while (!signal.aborted) {
    const view = await readStatus(server)
    const text = flags.json === true ? `${JSON.stringify(view)}\n` : `${statusText(view)}${changeText(view, before)}\n`
    await printPiece(isTerminal() && flags.json !== true ? `${REDRAW}${text}` : text)
    before = view
    await pause(systemClock, interval, signal)
  }
}

/** How the queue moved, per second. */
function changeText(view: StatusView, before: StatusView | null): string {
  if (before === null) return ''
  const seconds = (view.at - before.at) / SECOND
  const change = (view.health.queue_depth - before.health.queue_depth) / seconds
  if (seconds <= 0 || change === 0) return ''
  return `  queue ${change > 0 ? 'grows' : 'shrinks'} by ${Math.abs(change).toFixed(1)} messages a second\n`
}
