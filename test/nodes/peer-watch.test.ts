/** Who is dead is seen by commits that do not come, over six beats, and by nothing else. */
import t from 'tap'
import { createPeerWatch } from '../../src/nodes/peer-watch.ts'
import type { NodeRecord } from '../../src/store/records/node-records.ts'

function node(nodeId: string, lastCommit: number, change: Partial<NodeRecord> = {}): NodeRecord {
  const facts = { version: '1', configHash: '', startedAt: 0, beatAt: 0, endedBy: null, isDraining: false }
  return { nodeId, epoch: 1, state: 'living', lastCommit, ...facts, ...change }
}

/** A beat each 2 s, heard of 100 ms later. */
function createBeats() {
  const watch = createPeerWatch('a')
  let beats = 0
  return (...nodes: NodeRecord[]): string[] => {
    const startedAt = 2_000 * beats++
    return watch(nodes, { startedAt, heardAt: startedAt + 100 }).map(({ nodeId }) => nodeId)
  }
}

t.test('a node that commits nothing over 12 s and six beats is dead', async (t) => {
  const beat = createBeats()
  for (let count = 0; count < 7; count += 1) t.same(beat(node('a', 5), node('b', 7)), [], `beat ${count}`)
  t.same(beat(node('a', 5), node('b', 7)), ['b'], 'never myself')
})

t.test('beats that took long count for the time they were heard, and a long pause is no silence', async (t) => {
  const watch = createPeerWatch('a')
  const late = { startedAt: 0, heardAt: 9_000 }
  t.same(watch([node('b', 7)], late), [])
  for (let at = 10_000; at < 21_000; at += 2_000) {
    t.same(watch([node('b', 7)], { startedAt: at, heardAt: at }), [], `at ${at}`)
  }
  t.equal(watch([node('b', 7)], { startedAt: 22_000, heardAt: 22_000 }).length, 1)
  const paused = createPeerWatch('a')
  t.same(paused([node('b', 7)], { startedAt: 0, heardAt: 0 }), [])
  t.same(paused([node('b', 7)], { startedAt: 60_000, heardAt: 60_000 }), [], 'one beat alone says little')
})

t.test('one commit, or a new start, begins the count anew', async (t) => {
  for (const news of [node('b', 8), node('b', 7, { epoch: 2 })]) {
    const beat = createBeats()
    for (let count = 0; count < 7; count += 1) beat(node('b', 7))
    for (let count = 0; count < 7; count += 1) t.same(beat(news), [], `beat ${count}`)
    t.same(beat(news), ['b'])
  }
})

t.test('one that has stopped, or is dead already, is not watched', async (t) => {
  const beat = createBeats()
  for (let count = 0; count < 20; count += 1) {
    t.same(beat(node('b', 7, { state: 'stopped' }), node('c', 7, { state: 'dead' })), [])
  }
})
