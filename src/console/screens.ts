/** All screens: where they stand, what they are called, the key that leads there, and who sees them. */
import type { VNode } from './parts/html.ts'
import type { Who } from './parts/who.ts'

export interface Screen {
  /** First segment below `/console/`. */
  path: string
  title: string
  /** Behind `g`. */
  key: string
  /** Scope that it needs; `server`: only who administers all of it. */
  needs: string
  load: () => Promise<{ default: () => VNode }>
}

const SCREENS: readonly Screen[] = [
  { path: 'home', title: 'Home', key: 'h', needs: 'server', load: () => import('./screens/home.ts') },
  { path: 'inbox', title: 'Inbox', key: 'i', needs: 'sandbox', load: () => import('./screens/inbox.ts') },
  {
    path: 'messages',
    title: 'Messages',
    key: 'm',
    needs: 'messages:read',
    load: () => import('./screens/messages.ts'),
  },
  { path: 'queue', title: 'Queue', key: 'q', needs: 'server', load: () => import('./screens/queue.ts') },
  { path: 'ips', title: 'IPs', key: 'p', needs: 'stats', load: () => import('./screens/ips.ts') },
  { path: 'providers', title: 'Providers', key: 'v', needs: 'server', load: () => import('./screens/providers.ts') },
  { path: 'domains', title: 'Domains', key: 'd', needs: 'domains', load: () => import('./screens/domains.ts') },
  { path: 'webhooks', title: 'Webhooks', key: 'w', needs: 'webhooks', load: () => import('./screens/webhooks.ts') },
  {
    path: 'suppressions',
    title: 'Suppressions',
    key: 's',
    needs: 'suppressions',
    load: () => import('./screens/suppressions.ts'),
  },
  { path: 'people', title: 'Keys and people', key: 'k', needs: 'server', load: () => import('./screens/people.ts') },
  { path: 'system', title: 'System', key: 'y', needs: 'server', load: () => import('./screens/system.ts') },
  { path: 'api', title: 'API', key: 'a', needs: '', load: () => import('./screens/api.ts') },
]

/** Those that this session has something to see on; in a sandbox the inbox comes first. */
export function shownScreens({ scopes, domains, development }: Who): readonly Screen[] {
  const isEverything = scopes.includes('admin') && domains.length === 0
  const isShown = ({ needs }: Screen): boolean => {
    if (needs === '') return true
    if (needs === 'sandbox') return development
    if (needs === 'server') return isEverything
    if (needs === 'stats') return domains.length === 0 && (isEverything || scopes.includes(needs))
    return scopes.includes('admin') || scopes.includes(needs)
  }
  const shown = SCREENS.filter(isShown)
  const first = development ? shown.findIndex(({ path }) => path === 'inbox') : 0
  return [...shown.slice(first, first + 1), ...shown.slice(0, first), ...shown.slice(first + 1)]
}
