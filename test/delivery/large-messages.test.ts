/**
 * The room for large messages of a delivery thread: who waits, in what order, and for how long.
 */
import t from 'tap'
import { createLargeRoom } from '../../src/delivery/session/large-messages.ts'

t.test('who finds no room waits in line, behind those who came before', async (t) => {
  const take = createLargeRoom(10)
  const entered: string[] = []
  const enter = async (name: string, bytes: number): Promise<() => void> => {
    const leave = await take(bytes, `${name}.test`)
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
  const leave = await take(10, 'one.test')
  const behind = take(10, 'two.test')
  t.equal(await behind, null)
  const next = take(10, 'two.test')
  leave?.()
  t.ok(await next)
})

t.test('a domain that keeps its half of the room holds up nobody else', async (t) => {
  const take = createLargeRoom(10)
  const leave = await take(5, 'slow.test')
  const second = take(3, 'slow.test')
  const first = await Promise.race([second.then(() => 'slow.test'), take(5, 'good.test').then(() => 'good.test')])
  t.equal(first, 'good.test', 'it goes past what waits for the share of another')
  leave?.()
  t.ok(await second)
  const alone = await createLargeRoom(10)(9, 'slow.test')
  t.ok(alone, 'one message may be larger than the half')
})
