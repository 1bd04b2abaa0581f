/**
 * A TCP proxy that makes the other side far away: every piece of data is passed on after a one-way delay. A process of
 * its own, so that its timers cost the measured server nothing. Arguments: target port, one-way delay in milliseconds.
 *
 * Tells the bench its port, and on any message how many connections it had at once since the last one, and for how many
 * seconds in all they were open. Ends with the bench.
 */
import { connect, createServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'

const [targetPort = 0, oneWayMilliseconds = 0] = process.argv.slice(2).map(Number)
const BACKLOG = 4_096
let open = 0
let peak = 0
/** Of all connections together, in milliseconds. */
let openFor = 0
let countedAt = performance.now()

const server = createServer({ allowHalfOpen: true, noDelay: true }, (near) => {
  count(1)
  peak = Math.max(peak, open)
  const far = connect({ host: '127.0.0.1', port: targetPort, allowHalfOpen: true, noDelay: true })
  near.once('close', () => {
    count(-1)
    far.destroy()
  })
  far.once('close', () => near.destroy())
  passOn(near, far)
  passOn(far, near)
}).listen(0, '127.0.0.1', BACKLOG, () => process.send?.((server.address() as AddressInfo).port))

process.on('message', () => {
  count(0)
  process.send?.({ peak, connectionSeconds: openFor / 1_000 })
  peak = open
  openFor = 0
})
process.once('disconnect', () => process.exit(0))

function count(change: number): void {
  const now = performance.now()
  openFor += open * (now - countedAt)
  countedAt = now
  open += change
}

/** In order, as timers of one length are. */
function passOn(from: Socket, to: Socket): void {
  from.on('data', (bytes) => void setTimeout(() => to.write(bytes), oneWayMilliseconds))
  from.once('end', () => void setTimeout(() => to.end(), oneWayMilliseconds))
  from.on('error', () => to.destroy())
}
