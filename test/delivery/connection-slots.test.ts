import t from 'tap'
import {
  createConnectionSlots,
  type ConnectionSlots,
  type SlotUser,
} from '../../src/delivery/session/connection-slots.ts'

interface Sender extends SlotUser {
  name: string
  /** Connections it still wants. */
  wanted: number
  idle: number
}

interface Kit {
  slots: ConnectionSlots<Sender>
  /** Names, in the order in which connections began. */
  begun: string[]
  ended: string[]
  sender(name: string, wanted: number, isUrgent?: boolean): Sender
  /** Runs one turn of the event loop; false: nothing was planned. */
  turn(): boolean
}

function kit(most: number): Kit {
  const planned: (() => void)[] = []
  const begun: string[] = []
  const ended: string[] = []
  const slots = createConnectionSlots<Sender>(most, (run) => void planned.push(run))
  return {
    slots,
    begun,
    ended,
    sender(name, wanted, isUrgent = false) {
      const sender: Sender = {
        name,
        wanted,
        idle: 0,
        grow() {
          while (sender.wanted > 0 && slots.take(sender, isUrgent)) {
            sender.wanted--
            begun.push(name)
          }
        },
        retireIdle() {
          if (sender.idle === 0) return false
          sender.idle--
          ended.push(name)
          return true
        },
      }
      return sender
    },
    turn() {
      const run = planned.shift()
      run?.()
      return run !== undefined
    },
  }
}

t.test('a few begin in a turn of the event loop, the others in the next ones', async (t) => {
  const { slots, begun, sender, turn } = kit(100)
  const first = sender('first', 20)
  first.grow()
  t.equal(begun.length, 8)
  turn()
  t.equal(begun.length, 16, 'it goes on by itself')
  turn()
  t.equal(begun.length, 20)
  turn()
  t.notOk(turn(), 'nothing is planned when nobody waits')
  slots.release()
})

t.test('who waits gets one connection each time, urgent mail four of five', async (t) => {
  const { begun, sender, turn } = kit(100)
  sender('early', 8).grow()
  const late = Array.from({ length: 6 }, (_, index) => sender(`late-${index}`, 2))
  for (const each of late) each.grow()
  const urgent = sender('urgent', 5, true)
  urgent.grow()
  begun.length = 0
  turn()
  t.strictSame(begun, ['urgent', 'urgent', 'urgent', 'urgent', 'late-0', 'urgent', 'late-1', 'late-2'])
  begun.length = 0
  turn()
  t.strictSame(begun.slice(0, 4), ['late-3', 'late-4', 'late-5', 'late-0'], 'each one before the second of any')
})

t.test('who waits becomes urgent when urgent mail comes, and leaves when it needs none any more', async (t) => {
  const { slots, begun, sender, turn } = kit(100)
  sender('early', 8).grow()
  const [other, gone, second] = [sender('other', 1), sender('gone', 1), sender('second', 1)]
  for (const each of [other, gone, second]) each.grow()
  slots.take(second, true)
  slots.forget(gone)
  begun.length = 0
  turn()
  t.strictSame(begun, ['second', 'other'])
})

t.test('never more than there are; a released one goes to who waits', async (t) => {
  const { slots, begun, sender, turn } = kit(4)
  sender('first', 4).grow()
  sender('second', 2).grow()
  while (turn()) t.equal(begun.length, 4)
  t.strictSame(begun, ['first', 'first', 'first', 'first'])
  slots.release()
  turn()
  t.strictSame(begun.slice(4), ['second'])
})

t.test('connections without a row make room: when others wait, and for who comes next', async (t) => {
  const few = kit(2)
  const idle = few.sender('idle', 2)
  idle.grow()
  few.turn()
  idle.idle = 2
  few.slots.rests(idle)
  t.strictSame(few.ended, [], 'as long as nobody needs one, it waits for its next row')
  few.sender('needing', 1).grow()
  t.strictSame(few.ended, ['idle'])

  const many = kit(100)
  const [old, recent] = [many.sender('old', 50), many.sender('recent', 50)]
  while (old.wanted + recent.wanted > 0) {
    old.grow()
    recent.grow()
    many.turn()
  }
  old.idle = 50
  recent.idle = 50
  many.slots.rests(old)
  many.slots.rests(recent)
  for (let again = 0; again < 10; again++) many.slots.rests(recent)
  t.strictSame(many.ended, ['old', 'old', 'old', 'old', 'old'], 'one in twenty is kept free, the longest idle ones go')
})
