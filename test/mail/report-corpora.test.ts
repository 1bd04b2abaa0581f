/**
 * Real bounces, complaints and replies are read as well as promised (test/README.md "What is promised").
 */
import t from 'tap'
import { CORPORA, hasCorpora, scoreBounces, scoreFeedback, scoreReplies } from '../support/corpus-score.ts'

/** Shares that must be reached; what is measured is well above. */
const GOALS: readonly [figure: string, share: number][] = [
  ['recipients, confirmed ones', 0.985],
  ['recipients, all', 0.98],
  ['kind', 0.985],
  // OpenSMTPD calls the end of a message a delay.
  ['no bounce where there is none', 0.96],
  ['status', 0.99],
  ['hard', 0.97],
  ['suppressed rightly', 1],
  ['category', 0.8],
  ['feedback type', 1],
  ['complaint or not', 1],
  ['complaint recipients', 1],
  ['replies classified', 0.96],
  ['replies hard', 0.96],
  ['replies suppressed rightly', 1],
]

t.test('shares of what others collected', { skip: hasCorpora() ? false : 'the corpora are not there' }, async (t) => {
  const figures = new Map([...scoreBounces(CORPORA), ...scoreFeedback(CORPORA), ...scoreReplies(CORPORA)])
  for (const [name, share] of GOALS) {
    const { right, of } = figures.get(name) ?? { right: 0, of: 0 }
    t.ok(of > 0 && right / of >= share, `${name}: ${right} of ${of}`)
  }
})
