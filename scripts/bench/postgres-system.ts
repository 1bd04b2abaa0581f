/** Sternpost on PostgreSQL, in turns with the one on SQLite: a cluster of its own, whose commits are on the disk. */
import { startPostgres } from '../../test/support/postgres-cluster.ts'
import { sternpostSystem } from './sternpost-system.ts'
import { startSternpost } from './sternpost.ts'
import type { Start } from './system.ts'

export function startOnPostgres(clients: number): Start {
  return async ({ sinkPort }) => {
    const ends: (() => unknown)[] = []
    const cluster = await startPostgres(
      { teardown: (end) => void ends.push(end) },
      { settings: { fsync: 'on', shared_buffers: '256MB' } },
    )
    const databaseUrl = cluster.url(await cluster.createDatabase())
    const sternpost = await startSternpost({ deliveryPort: sinkPort, databaseUrl })
    return {
      ...sternpostSystem(sternpost, clients, { accepted: 0 }),
      name: 'sternpost_postgresql',
      // It has a key of its own, which the resolver of the comparison does not know.
      isSigning: false,
      processes: () => ({ sternpost: sternpost.server.processId, postgresql: cluster.processId }),
      async stop() {
        await sternpost.stop()
        for (const end of ends) await end()
      },
    }
  }
}
