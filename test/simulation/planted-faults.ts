/**
 * Faults that are planted into a copy of the code, to see that the simulator finds them: `npm run simulate --
 * --planted`. Each is an edit that a tired programmer could make.
 */

export interface Edit {
  /** From the root of the project. */
  file: string
  /** It is there exactly once. */
  from: string
  to: string
}

export interface PlantedFault {
  name: string
  edits: readonly Edit[]
}

const edit = (file: string, from: string, to: string): Edit => ({ file, from, to })

export const PLANTED_FAULTS: readonly PlantedFault[] = [
  {
    name: 'a row that is claimed again before its give-back was heard is dropped, and rows behind a rate go back',
    edits: [
      edit(
        'src/delivery/claiming.ts',
        'else placer.place(messages)',
        `else placer.place(messages.filter((one) =>
      [...window.held()].filter(({ key }) => key === one.key).length < 2))`,
      ),
      edit('src/egress/shaping/open-gate.ts', 'takesRows = tokenAt - now <= SHORT_WAIT', 'takesRows = false'),
    ],
  },
  {
    name: 'a lost wake-up: nobody tells the directory of accepted mail',
    edits: [edit('src/delivery/dispatcher.ts', '      directory.note(keys)\n      // Also of', '      // Also of')],
  },
  {
    name: 'a leaked count: a try that led to nothing stays under way on its path',
    edits: [
      edit(
        'src/delivery/place/paths.ts',
        '      path.underWay--\n',
        '      if (path.memory.counted % 7 > 0) path.underWay--\n',
      ),
    ],
  },
  {
    name: 'a mark that is not awaited',
    edits: [
      edit(
        'src/delivery/session/connection-worker.ts',
        'askMark: (answer) => tools.askMark(claim, answer),',
        'askMark(answer) {\n        tools.askMark(claim, () => {})\n        answer(true)\n      },',
      ),
    ],
  },
  {
    name: 'a lease that is renewed too late',
    edits: [edit('src/delivery/orphans.ts', 'const RENEW_EVERY = MINUTE', 'const RENEW_EVERY = 10 * MINUTE')],
  },
  {
    name: 'a swallowed give-back',
    edits: [
      edit(
        'src/delivery/sending.ts',
        'for (const { row, closure } of returned)',
        'for (const { row, closure } of returned.slice(1))',
      ),
    ],
  },
  {
    name: 'a thread that dies tells nothing of possible duplicates',
    edits: [
      edit(
        'src/delivery/settle/settle-tries.ts',
        'const isMarked = leave(row)\n      if (isMarked) uncertain++',
        'leave(row)\n      const isMarked = false',
      ),
    ],
  },
  {
    name: 'a start that forgets the dot marks of the process before',
    edits: [
      edit(
        'src/store/verbs/queue/freed-leases.ts',
        'releaseAbandoned.run(uncertainAt, 1, 1, limit, 1)',
        'releaseAbandoned.run(now, 0, 1, limit, 1)',
      ),
    ],
  },
  {
    name: 'outcomes that the store has refused are not tried again',
    edits: [edit('src/delivery/settle/outcome-recorder.ts', '      kind.rows.unshift(...batch)\n', '')],
  },
  {
    name: 'nobody moves rows on that have just got a path',
    edits: [
      edit(
        'src/delivery/dispatcher-parts.ts',
        'row.facts.key)\n      }\n      wake.paths()\n',
        'row.facts.key)\n      }\n',
      ),
    ],
  },
  {
    name: 'more rows than there are tokens',
    edits: [
      edit(
        'src/delivery/place/take-rows.ts',
        'takeInTurns(path, tokens.granted, most)',
        'takeInTurns(path, wanted, most)',
      ),
    ],
  },
  {
    name: 'allowance that was refused is used',
    edits: [
      edit(
        'src/delivery/place/place-messages.ts',
        'const count = reservation?.granted ?? 0',
        'const count = group.length',
      ),
    ],
  },
  {
    name: 'one connection too many',
    edits: [
      edit(
        'src/delivery/session/path-sender.ts',
        'if (sites.workerCount() < plan().connections) return true',
        'if (sites.workerCount() <= plan().connections) return true',
      ),
    ],
  },
  {
    name: 'a post that nobody answered keeps its slot',
    edits: [
      edit(
        'src/webhooks/webhook-engine.ts',
        '    slots.release(endpointId, posted.status !== null)\n',
        '    if (posted.status !== null) slots.release(endpointId, true)\n',
      ),
    ],
  },
  {
    name: 'a post without an answer counts as told',
    edits: [
      edit(
        'src/webhooks/webhook-results.ts',
        'if (posted.isSuccess) return',
        'if (posted.isSuccess || posted.status === null) return',
      ),
    ],
  },
]
