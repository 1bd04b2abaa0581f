/** A claimed message with the path it was given: from which IP, to which hosts, under which limits. */
import type { EgressIp } from '../../egress/ips/egress-ip.ts'
import type { Lane } from '../../egress/shaping/shaping.ts'
import type { Grant } from '../../store/records/queue-records.ts'
import type { ClaimedMessage } from '../../store/records/claim-records.ts'
import type { PathRow } from './take-rows.ts'
import type { HostsRoute } from '../route/route-message.ts'

export interface PlacedRow extends PathRow {
  message: ClaimedMessage
  lane: Lane
  /** null: it goes to the capture server, from loopback. */
  ip: EgressIp | null
  /** Its hosts are those that the IP can reach. */
  route: HostsRoute
  /** Host name of the envelope sender's domain. */
  returnPath: string
  /** The warmup allowance it was given; null: it needs none. */
  grant: Grant | null
}
