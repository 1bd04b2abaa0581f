/**
 * A ring of members that take turns. A member comes in behind all others, or before them; its leaving changes nothing
 * for its neighbours. Every step but `takeTurns` takes constant time.
 */
export type TurnRing<Member> = ReturnType<typeof createTurnRing<Member>>

/** A link of the ring; alone it is its own neighbour. */
class Place<Member> {
  readonly member: Member
  before: Place<Member> = this
  behind: Place<Member> = this

  constructor(member: Member) {
    this.member = member
  }
}

export function createTurnRing<Member>() {
  const places = new Map<Member, Place<Member>>()
  let turn: Place<Member> | undefined

  /** The place behind all others is the one in front of the member whose turn it is. */
  function add(member: Member): void {
    if (places.has(member)) return
    const place = new Place(member)
    places.set(member, place)
    turn ??= place
    place.before = turn.before
    place.behind = turn
    turn.before.behind = place
    turn.before = place
  }

  return {
    /** Behind all others. Nothing happens when it is in already. */
    add,
    /** Before all others: the next turn is its own. Nothing happens when it is in already. */
    addNext(member: Member): void {
      if (places.has(member)) return
      add(member)
      turn = places.get(member)
    },
    remove(member: Member): void {
      const place = places.get(member)
      if (place === undefined) return
      places.delete(member)
      place.before.behind = place.behind
      place.behind.before = place.before
      if (turn === place) turn = places.size === 0 ? undefined : place.behind
    },
    /** Whose turn it is; the turn goes on to the next. Undefined: nobody is in. */
    next(): Member | undefined {
      const member = turn?.member
      turn = turn?.behind
      return member
    },
    /** The turn goes to this one; nothing happens when it is not in. */
    startAt(member: Member): void {
      turn = places.get(member) ?? turn
    },
    size: () => places.size,
  }
}

/** What a member took in its turn, and whether it would take more in another one. */
export type Taken = { count: number; wantsMore: boolean }

/**
 * Hands out `amount` in turns; `serve` gets an equal part of what is left, at least 1, and takes at most that. Members
 * that take nothing, or want no more, are asked once. Returns what nobody took. The next call goes on where this one
 * ended.
 */
export function takeTurns<Member>(
  ring: TurnRing<Member>,
  amount: number,
  serve: (member: Member, part: number, left: number) => Taken,
): number {
  let left = amount
  let again: Member[] = []

  function serveOne(member: Member, part: number): void {
    const { count, wantsMore } = serve(member, Math.min(part, left), left)
    left -= count
    if (count > 0 && wantsMore) again.push(member)
  }

  const members = ring.size()
  const firstPart = Math.max(1, Math.floor(left / Math.max(1, members)))
  for (let asked = 0; asked < members && left > 0; asked++) {
    const member = ring.next()
    if (member !== undefined) serveOne(member, firstPart)
  }
  while (left > 0 && again.length > 0) {
    const [turns, part] = [again, Math.max(1, Math.floor(left / again.length))]
    again = []
    for (const member of turns) {
      if (left === 0) {
        ring.startAt(member)
        break
      }
      serveOne(member, part)
    }
  }
  return left
}
