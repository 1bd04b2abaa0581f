import { readdirSync, readFileSync } from 'node:fs'
import { getPriority } from 'node:os'
import { Worker } from 'node:worker_threads'
import t from 'tap'
import { giveWay } from '../../src/base/threads/thread-priority.ts'

/** Of each thread of this process that the system shows under this name. */
function prioritiesOf(name: string): number[] {
  return readdirSync('/proc/self/task')
    .filter((task) => readFileSync(`/proc/self/task/${task}/comm`, 'utf8').trim() === name)
    .map((task) => getPriority(Number(task)))
}

t.test('the named threads give way, all others keep their turn', async (t) => {
  const workers = ['patient', 'patient', 'hasty'].map(
    (name) => new Worker('setInterval(() => {}, 1000)', { eval: true, name }),
  )
  t.teardown(() => Promise.all(workers.map((worker) => worker.terminate())))
  await Promise.all(workers.map((worker) => new Promise((resolve) => worker.once('online', resolve))))
  const ours = getPriority(process.pid)

  giveWay(['patient', 'nobody'])

  const given = Math.min(19, ours + 10)
  t.same(prioritiesOf('patient'), [given, given])
  t.same(prioritiesOf('hasty'), [ours])
  t.equal(getPriority(process.pid), ours)
})
