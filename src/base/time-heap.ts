/**
 * Things by time: the earliest comes out first, each has one place. Equal times come out in no order. Pure; never
 * throws; every step takes at most the logarithm of how many there are.
 */

interface Node<Item> {
  at: number
  item: Item
  /** In the list of nodes. */
  index: number
}

type TimeHeap<Item> = ReturnType<typeof createTimeHeap<Item>>

export function createTimeHeap<Item>() {
  const nodes: Node<Item>[] = []
  const places = new Map<Item, Node<Item>>()
  const timeOf = (index: number): number => nodes[index]?.at ?? Infinity

  function swap(left: number, right: number): void {
    const [first, second] = [nodes[left], nodes[right]]
    if (first === undefined || second === undefined) return
    nodes[left] = second
    nodes[right] = first
    second.index = left
    first.index = right
  }

  function rise(from: number): void {
    for (let index = from; index > 0;) {
      const parent = (index - 1) >> 1
      if (timeOf(parent) <= timeOf(index)) return
      swap(parent, index)
      index = parent
    }
  }

  function sink(from: number): void {
    for (let index = from; ;) {
      const left = 2 * index + 1
      const smaller = timeOf(left + 1) < timeOf(left) ? left + 1 : left
      if (timeOf(smaller) >= timeOf(index)) return
      swap(smaller, index)
      index = smaller
    }
  }

  function settle(node: Node<Item>): void {
    rise(node.index)
    sink(node.index)
  }

  function remove(item: Item): void {
    const node = places.get(item)
    if (node === undefined) return
    places.delete(item)
    const { index } = node
    swap(index, nodes.length - 1)
    nodes.pop()
    const moved = nodes[index]
    if (moved !== undefined) settle(moved)
  }

  return {
    /** Takes it in; the time of one that is in changes. */
    set(item: Item, at: number): void {
      const known = places.get(item)
      const node = known ?? { at, item, index: nodes.length }
      node.at = at
      if (known === undefined) {
        places.set(item, node)
        nodes.push(node)
      }
      settle(node)
    },
    /** Nothing happens when it is not in. */
    remove,
    /** Undefined: it is not in. */
    timeOf: (item: Item): number | undefined => places.get(item)?.at,
    /** The earliest one, or undefined when it is empty. */
    peek: (): { at: number; item: Item } | undefined => nodes[0],
    pop(): { at: number; item: Item } | undefined {
      const [first] = nodes
      if (first !== undefined) remove(first.item)
      return first
    },
    size: () => nodes.length,
  }
}

/** Takes out of the heap those whose time has come by `now`, the earliest first, at most so many. */
export function* takeDue<Item>(heap: TimeHeap<Item>, now: number, most: number): Generator<Item> {
  for (let taken = 0; taken < most; taken += 1) {
    if ((heap.peek()?.at ?? Infinity) > now) return
    const first = heap.pop()
    if (first !== undefined) yield first.item
  }
}
