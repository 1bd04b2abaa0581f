/**
 * Finds the route of a request, under /v1 and under /api/v1 (http/README.md "Conventions"); health also at /health.
 *
 * A trailing slash is ignored, HEAD is GET. A path without parameters hides one with parameters: GET /email/send is a
 * wrong method, not a message called "send". Never throws.
 */
import Router from '@koa/router'
import type { Route } from './route.ts'

type FoundRoute =
  | { kind: 'found'; route: Route; params: Record<string, string> }
  | { kind: 'wrong-method'; isPublic: boolean; allow: string }
  | { kind: 'unknown-path'; isPublic: boolean }

export interface RouteTable {
  find(path: string, method: string): FoundRoute
}

/** @koa/router's notation: the part in braces may be left out. */
const PREFIXES = '{/api}/v1'
const PLAIN_PREFIXES = ['/v1', '/api/v1']
/** /v1 and /api/v1 themselves, and what is below them. */
const UNDER_PREFIX = /^(?:\/api)?\/v1(?:\/|$)/
/** The prefix, and a trailing slash. */
const AROUND_PATH = /^(?:\/api)?\/v1|\/$/g
const NO_PARAMS: Record<string, string> = Object.freeze({})

export function createRouteTable(routes: readonly Route[]): RouteTable {
  const router = new Router({ sensitive: true })
  const byName = new Map<string, Route>()
  // By method and path as nearly every request writes them: for these the router need not be asked.
  const plain = new Map<string, FoundRoute>()
  for (const route of routes) {
    const name = `${route.method} ${route.path}`
    byName.set(name, route)
    const found: FoundRoute = { kind: 'found', route, params: NO_PARAMS }
    const isPlain = !route.path.includes(':')
    for (const prefix of isPlain ? PLAIN_PREFIXES : []) plain.set(`${route.method} ${prefix}${route.path}`, found)
    const paths = route.path === '/health' ? [`${PREFIXES}/health`, '/health'] : [`${PREFIXES}${route.path}`]
    // Only the matching of the router is used: what happens in which order is written down once, in handle-request.ts.
    for (const path of paths) router.register(path, [route.method], () => {}, { name })
  }

  return {
    find(path, method) {
      const known = plain.get(`${method} ${path}`)
      if (known !== undefined) return known
      const matched = router.match(path, method).path
      const fixed = matched.filter((layer) => layer.paramNames.length === 0)
      const layers = fixed.length > 0 ? fixed : matched
      const layer = layers.find(({ methods }) => methods.includes(method))
      const route = byName.get(layer?.name ?? '')
      if (layer !== undefined && route !== undefined) {
        return { kind: 'found', route, params: fixed.length > 0 ? NO_PARAMS : layer.params(path, layer.captures(path)) }
      }
      if (layers.length === 0) return { kind: 'unknown-path', isPublic: !UNDER_PREFIX.test(path) }
      const allow = layers
        .flatMap(({ methods }) => methods)
        .toSorted()
        .join(', ')
      const isPublic = layers.every(({ name = '' }) => byName.get(name)?.scope === null)
      return { kind: 'wrong-method', isPublic, allow }
    },
  }
}

/** A URL in origin form: up to the question mark, and behind it. */
export function splitTarget(url: string): { path: string; search: string } {
  const mark = url.indexOf('?')
  return mark < 0 ? { path: url, search: '' } : { path: url.slice(0, mark), search: url.slice(mark + 1) }
}

/** The same for every way to write a path, e.g. /domains/acme.com */
export function pathBelowPrefix(path: string): string {
  return path.replace(AROUND_PATH, '')
}
