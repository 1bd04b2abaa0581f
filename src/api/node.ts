/** Nodes that work with one database. */
import { z } from 'zod'
import { textOrNull, time } from './fields.ts'

const nodeSchema = z.object({
  node_id: z.string(),
  state: z.enum(['living', 'stopped', 'dead']),
  draining: z.boolean(),
  /** It is the one that answers. */
  answers: z.boolean(),
  version: z.string(),
  /** The same on all nodes whose configuration is the same. */
  config_hash: z.string(),
  started_at: time().nullable(),
  /** By its own clock. */
  seen_at: time(),
  /** The node that declared it dead. */
  ended_by: textOrNull(),
  /** It sends from these. */
  ips: z.array(z.string()),
})

export const nodesSchema = z.object({
  nodes: z.array(nodeSchema),
  /** IPs that the node which answers could not take. */
  problems: z.array(z.object({ ip: z.string(), problem: z.string() })),
})

export const drainNodeSchema = z.object({ draining: z.boolean().nullish() })

export const drainedNodeSchema = z.object({ node_id: z.string(), draining: z.boolean() })

export const forgottenNodeSchema = z.object({ node_id: z.string(), forgotten: z.boolean() })

export type NodeJson = z.infer<typeof nodeSchema>
export type NodesJson = z.infer<typeof nodesSchema>
