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
  /** Without `domain` each connection is for mail of another sending domain. */
  sender(name: string, wanted: number, isUrgent?: boolean, domain?: string): Sender
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
    sender(name, wanted, isUrgent = false, domain) {
      const sender: Sender = {
        name,
        wanted,
        idle: 0,
        grow() {
          while (
            sender.wanted > 0 &&
            slots.take(sender, isUrgent, [domain ?? `${name}-${sender.wanted}`]) !== undefined
          ) {
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
  slots.release('first-1')
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
  slots.take(second, true, ['acme.com'])
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
  slots.release('first-1')
  turn()
  t.strictSame(begun.slice(4), ['second'])
})

t.test('connections without a row make room: when others wait, and for who comes next', async (t) => {
  const few = kit(2)
  const idle = few.sender('idle', 2)
  idle.grow()
  few.turn()
  idle.idle = 2
  few.slots.rests(idle, 'any.com')
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
  many.slots.rests(old, 'any.com')
  many.slots.rests(recent, 'any.com')
  for (let again = 0; again < 10; again++) many.slots.rests(recent, 'any.com')
  t.strictSame(many.ended, ['old', 'old', 'old', 'old', 'old'], 'one in twenty is kept free, the longest idle ones go')
})

t.test('one sending domain leaves connections to the others, whoever came first', async (t) => {
  const { slots, begun, sender, turn } = kit(100)
  const rest = (): void => {
    for (let turns = 0; turns < 100 && turn(); turns++);
    t.notOk(turn(), 'nothing goes round while nobody may')
  }
  const slow = Array.from({ length: 200 }, (_, index) => sender(`slow-${index}`, 1, false, 'acme.com'))
  for (const each of slow) each.grow()
  rest()
  t.equal(begun.length, 90, 'nine times as many as are free')
  const other = sender('other', 20, false, 'bravo.com')
  other.grow()
  t.equal(begun[90], 'other', 'nobody is before it')
  rest()
  t.equal(begun.length, 99, 'and nine tenths of the rest')
  t.equal(slots.take(sender('slow-0', 1), false, ['acme.com', 'third.com']), 'third.com', 'a host that two write to')
  rest()
  slots.release('bravo.com')
  rest()
  t.strictSame(begun.slice(99), ['other'], 'who has few goes on')
  for (let ended = 0; ended < 20; ended++) slots.release('acme.com')
  rest()
  t.ok(begun.slice(100).includes('slow-90'), 'and so does who had many, when there is room')
  for (const each of [...slow, other]) slots.forget(each)
  begun.length = 0
  for (let ended = 0; ended < 20; ended++) slots.release('acme.com')
  rest()
  t.strictSame(begun, [], 'who needs none any more is not asked')
})

t.test(
  'where others of its sending domain wait, a connection without a row makes room; those of no other do',
  async (t) => {
    const { slots, begun, ended, sender, turn } = kit(20)
    const [idle, more] = [sender('idle', 18, false, 'acme.com'), sender('more', 1, false, 'acme.com')]
    const innocent = sender('innocent', 1, false, 'bravo.com')
    for (const each of [innocent, idle]) each.grow()
    while (idle.wanted > 0 && turn());
    more.grow()
    while (turn());
    for (const each of [idle, innocent]) each.idle = 1
    slots.rests(innocent, 'bravo.com')
    slots.rests(idle, 'acme.com')
    t.strictSame(ended, ['idle'])
    slots.release('acme.com')
    turn()
    t.equal(begun.at(-1), 'more')
  },
)
