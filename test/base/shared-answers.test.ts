/** Costly answers that many ask for: what is kept for how long, and what a failure leaves. */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { createSharedAnswers } from '../../src/base/shared-answers.ts'
import { until } from '../support/until.ts'

function counted() {
  const answers = createSharedAnswers<number>()
  let found = 0
  const ask = (question: string): Promise<number> =>
    answers.get(question, async () => {
      await sleep(100)
      found += 1
      return found
    })
  return { ask, forget: answers.forget }
}

t.test('an answer is found anew after ten times as long as it took', async (t) => {
  const { ask } = counted()
  t.same(await Promise.all([ask('a'), ask('b'), ask('a')]), [1, 2, 1])
  const askedAt = performance.now()
  await until('it is found anew', async () => (await ask('b')) > 2)
  t.ok(performance.now() - askedAt > 800)
})

t.test('whoever asks after a change does not get what was being found before', async (t) => {
  const { ask, forget } = counted()
  const before = ask('a')
  forget()
  t.same([await ask('a'), await before, await ask('a')], [2, 1, 2])
})

t.test('a failure is for those who waited, and the next one is found', async (t) => {
  const answers = createSharedAnswers<number>()
  const fail = (): Promise<number> => Promise.reject(new Error('gone'))
  const both = await Promise.allSettled([
    answers.get('a', fail),
    answers.get('a', fail),
    answers.get('b', async () => 2),
  ])
  t.match(both, [{ reason: { message: 'gone' } }, { reason: { message: 'gone' } }, { value: 2 }])
  t.equal(await answers.get('a', async () => 1), 1)
})
