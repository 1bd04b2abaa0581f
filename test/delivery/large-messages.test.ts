/**
 * The room for large messages of a delivery thread: who waits, in what order, and for how long.
 */
import t from 'tap'
import { createLargeRoom } from '../../src/delivery/session/large-messages.ts'

t.test('who finds no room waits in line, behind those who came before', async (t) => {
  const take = createLargeRoom(10)
  const entered: string[] = []
  const enter = async (name: string, bytes: number): Promise<() => void> => {
    const leave = await take(bytes)
    entered.push(name)
    if (leave === null) throw new Error('there was no room in time')
    return leave
  }
  const leaveFirst = await enter('first', 6)
  const second = enter('second', 6)
  const third = enter('third', 1)
  const leaveFourth = enter('alone', 50).then((leave) => leave())
  await new Promise(setImmediate)
  t.same(entered, ['first'], 'a smaller one does not overtake')
  leaveFirst()
  leaveFirst()
  const leaveSecond = await second
  const leaveThird = await third
  t.same(entered, ['first', 'second', 'third'])
  leaveSecond()
  await new Promise(setImmediate)
  t.equal(entered.length, 3, 'one that is larger than all waits until it is alone')
  leaveThird()
  await leaveFourth
  t.equal(entered.at(-1), 'alone')
})

t.test('nobody waits for ever, and who went without does not count', async (t) => {
  const take = createLargeRoom(10, 20)
  const leave = await take(10)
  const behind = take(10)
  t.equal(await behind, null)
  const next = take(10)
  leave?.()
  t.ok(await next)
})
