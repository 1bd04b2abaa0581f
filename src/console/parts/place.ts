/** Where the person is: path and query of the address, which holds all state of a screen that can be shared. */
import { signal } from '@preact/signals'
import { html, type VNode, type WithChildren } from './html.ts'

interface Place {
  /** Segments below `/console/`. */
  segments: readonly string[]
  query: URLSearchParams
}

const ROOT = '/console/'

export const place = signal(readPlace())

function readPlace(): Place {
  const { pathname, search } = location
  const segments = pathname.slice(ROOT.length).split('/').filter(Boolean).map(decoded)
  return { segments, query: new URLSearchParams(search) }
}

/** What is no encoding stays as it is. */
function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment)
  } catch {
    return segment
  }
}

let isFirst = true

/** Somebody went to this place from another one: the browser does not tell screen readers so, as it does of a page. */
export const isFurtherPlace = (): boolean => !isFirst

/** `path`: below `/console/`, with its query. */
export function go(path: string, { replaces = false } = {}): void {
  isFirst = false
  if (replaces) history.replaceState(null, '', ROOT + path)
  else history.pushState(null, '', ROOT + path)
  place.value = readPlace()
}

/** For what ends later: leads to a path, unless the person has left the screen where it began. */
export function goFromHere(): (path: string) => void {
  const from = place.value.segments.join('/')
  return (path) => {
    if (place.value.segments.join('/') === from) go(path)
  }
}

const LEFT = 'sternpost left'

/** Whoever logs in in this tab comes back to this place. */
export function goToLogin(): void {
  sessionStorage.setItem(LEFT, location.pathname.slice(ROOT.length) + location.search)
  location.replace('/console/login')
}

/** Behind a login: to where this tab was before. */
export function comeBack(): void {
  const left = sessionStorage.getItem(LEFT)
  sessionStorage.removeItem(LEFT)
  if (left !== null && location.pathname === ROOT) go(left, { replaces: true })
}

addEventListener('popstate', () => {
  isFirst = false
  place.value = readPlace()
})

interface LinkProps extends WithChildren {
  to: string
  class?: string
  current?: boolean
}

/** A real link: it opens in a tab of its own too. */
export function Link({ to, current = false, children, class: className = '' }: LinkProps): VNode {
  const follow = (event: MouseEvent): void => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return
    event.preventDefault()
    go(to)
  }
  return html`<a
    href=${ROOT + to}
    class=${className}
    aria-current=${current ? 'page' : undefined}
    onClick=${follow}
    >${children}</a
  >`
}
