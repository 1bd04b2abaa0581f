/** Who is dead is seen by commits that do not come, over six beats, and by nothing else. */
import t from 'tap'
import { createPeerWatch } from '../../src/nodes/peer-watch.ts'
import type { NodeRecord } from '../../src/store/records/node-records.ts'

function node(nodeId: string, lastCommit: number, change: Partial<NodeRecord> = {}): NodeRecord {
  const facts = { version: '1', configHash: '', startedAt: 0, beatAt: 0, endedBy: null, isDraining: false }
  return { nodeId, epoch: 1, state: 'living', lastCommit, ...facts, ...change }
}

t.test('a node that commits nothing for six beats in a row is dead', async (t) => {
  const watch = createPeerWatch('a')
  for (let beat = 0; beat < 6; beat += 1) t.same(watch([node('a', 5), node('b', 7)]), [], `beat ${beat}`)
  t.match(watch([node('a', 5), node('b', 7)]), [{ nodeId: 'b', epoch: 1 }], 'never myself')
})

t.test('one commit, or a new start, begins the count anew', async (t) => {
  for (const news of [node('b', 8), node('b', 7, { epoch: 2 })]) {
    const watch = createPeerWatch('a')
    for (let beat = 0; beat < 6; beat += 1) watch([node('b', 7)])
    for (let beat = 0; beat < 6; beat += 1) t.same(watch([news]), [], `beat ${beat}`)
    t.equal(watch([news]).length, 1)
  }
})

t.test('one that has stopped, or is dead already, is not watched', async (t) => {
  const watch = createPeerWatch('a')
  for (let beat = 0; beat < 20; beat += 1) {
    t.same(watch([node('b', 7, { state: 'stopped' }), node('c', 7, { state: 'dead' })]), [])
  }
})
