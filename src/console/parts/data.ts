/** Data of the API in a screen: asked for when the screen opens or its question changes, and again on demand. */
import { ask, askPage, pathWith, problemText, type ListPage, type Parameters } from './api.ts'
import { useCallback, useEffect, useRef, useState } from './html.ts'

export interface Loaded<Data> {
  /** The last that came, also while it is asked for again; null: none yet. */
  data: Data | null
  problem: string | null
  again: () => void
  /** The same, unless it is being asked for: a server that takes long is not asked more often for that. */
  poll: () => void
  /** The same, but behind an answer that is still awaited: what happened since it was made is not in it. */
  catchUp: () => void
}

/** `path` null: nothing is asked. */
export function useData<Data>(path: string | null, parameters?: Parameters): Loaded<Data> {
  return useLoad(path === null ? null : pathWith(path, parameters), () => ask<Data>(path ?? '', parameters))
}

function useLoad<Data>(question: string | null, load: () => Promise<Data>): Loaded<Data> {
  const [state, setState] = useState<{ question: string | null; data: Data | null; problem: string | null }>({
    question: null,
    data: null,
    problem: null,
  })
  const latest = useRef(0)
  const isOpen = useRef(false)
  const isBehind = useRef(false)
  // What is asked now: an act that ends later, by another question, asks this one again.
  const current = useRef({ question, load })
  current.current = { question, load }
  const again = useCallback(() => {
    const { question: asked, load: loadIt } = current.current
    const mine = ++latest.current
    const isLatest = (): boolean => mine === latest.current
    isOpen.current = asked !== null
    isBehind.current = false
    if (asked === null) return
    const fail = (thrown: unknown): void =>
      setState(({ question: before, data }) => ({
        question: asked,
        data: before === asked ? data : null,
        problem: problemText(thrown),
      }))
    loadIt()
      .then(
        (data) => isLatest() && setState({ question: asked, data, problem: null }),
        (thrown: unknown) => isLatest() && fail(thrown),
      )
      .finally(() => {
        if (!isLatest()) return
        isOpen.current = false
        if (isBehind.current) again()
      })
  }, [])
  const poll = useCallback(() => {
    if (!isOpen.current) again()
  }, [again])
  const catchUp = useCallback(() => {
    isBehind.current = isOpen.current
    poll()
  }, [poll])
  useEffect(again, [question])
  const isCurrent = state.question === question
  return { data: isCurrent ? state.data : null, problem: isCurrent ? state.problem : null, again, poll, catchUp }
}

export interface LoadedList<Entry> {
  /** null: none came yet. */
  entries: Entry[] | null
  problem: string | null
  hasMore: boolean
  more: () => void
  again: () => void
  poll: () => void
  catchUp: () => void
}

const leaveIt = (): void => {}

/** A list by pages of 50: `more` adds the next one, and it stays as it is then until somebody asks again. */
export function useList<Entry>(path: string | null, parameters: Parameters = {}): LoadedList<Entry> {
  const question = path === null ? null : pathWith(path, parameters)
  const first = useLoad<ListPage<Entry>>(question, () => askPage<Entry>(path ?? '', parameters))
  const [rest, setRest] = useState<{ of: ListPage<Entry> | null; pages: ListPage<Entry>[]; problem: string | null }>({
    of: null,
    pages: [],
    problem: null,
  })
  const further = first.data !== null && rest.of === first.data ? rest.pages : []
  const pages = first.data === null ? [] : [first.data, ...further]
  const last = pages.at(-1)
  const more = (): void => {
    if (path === null || last === undefined || last.next_cursor === null) return
    askPage<Entry>(path, { ...parameters, after: last.next_cursor }).then(
      (page) => setRest({ of: first.data, pages: [...pages.slice(1), page], problem: null }),
      (thrown: unknown) => setRest({ of: first.data, pages: pages.slice(1), problem: problemText(thrown) }),
    )
  }
  return {
    entries: first.data === null ? null : pages.flatMap(({ data }) => data),
    problem: first.problem ?? (rest.of === first.data ? rest.problem : null),
    hasMore: last?.has_more ?? false,
    more,
    again: first.again,
    poll: further.length === 0 ? first.poll : leaveIt,
    catchUp: further.length === 0 ? first.catchUp : leaveIt,
  }
}

/** Asks again every so many seconds while the page is seen. */
export function useEvery(seconds: number, { poll }: Pick<Loaded<unknown>, 'poll'>): void {
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === 'visible' && poll(), seconds * 1000)
    return () => clearInterval(timer)
  }, [seconds, poll])
}
