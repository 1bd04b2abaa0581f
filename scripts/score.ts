/**
 * npm run score: how well reports and replies are read, on the corpora beside the project.
 *
 * Prints a table of shares, then what was read differently; `--quiet` leaves the second out, `--corpora DIR` names
 * another folder. Says so and exits 0 where there are no corpora.
 */
import { parseArgs } from 'node:util'
import { CORPORA, hasCorpora, scoreBounces, scoreFeedback, scoreReplies } from '../test/support/corpus-score.ts'

const { values: flags } = parseArgs({
  options: { corpora: { type: 'string', default: CORPORA }, quiet: { type: 'boolean', default: false } },
})

if (hasCorpora(flags.corpora)) printScore(flags.corpora)
else process.stdout.write(`There are no corpora in ${flags.corpora}: nothing to score.\n`)

function printScore(folder: string): void {
  const figures = [...scoreBounces(folder), ...scoreFeedback(folder), ...scoreReplies(folder)]
  for (const [name, { right, of }] of figures) {
    const share = ((100 * right) / of).toFixed(1).padStart(5)
    process.stdout.write(`${name.padEnd(30)} ${share} %  ${right} of ${of}\n`)
  }
  if (flags.quiet) return
  for (const [name, { misses }] of figures) {
    for (const miss of misses) process.stdout.write(`\n${name}: ${miss}`)
  }
  process.stdout.write('\n')
}
