/**
 * A claimed message with the path it was given: from which IP, to which hosts, under which limits.
 */
import type { EgressIp } from '../egress/pool.ts'
import type { ClaimedMessage } from '../store/records.ts'
import type { PathRow } from './paths.ts'
import type { HostsRoute } from './route-message.ts'

export interface PlacedRow extends PathRow {
  message: ClaimedMessage
  /** null: it goes to the capture server, from loopback. */
  ip: EgressIp | null
  route: HostsRoute
  /** Host name of the envelope sender's domain. */
  returnPath: string
}
