/**
 * A TCP proxy that makes the other side far away: every piece of data is passed on after a one-way delay. A process of
 * its own, so that its timers cost the measured server nothing. Arguments: target port, one-way delay in milliseconds.
 *
 * Tells the bench its port, and on any message how many connections it has and had at once. Ends with the bench.
 */
import { connect, createServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'

const [targetPort = 0, oneWayMilliseconds = 0] = process.argv.slice(2).map(Number)
const BACKLOG = 4_096
let open = 0
let peak = 0

const server = createServer({ allowHalfOpen: true, noDelay: true }, (near) => {
  open += 1
  peak = Math.max(peak, open)
  const far = connect({ host: '127.0.0.1', port: targetPort, allowHalfOpen: true, noDelay: true })
  near.once('close', () => {
    open -= 1
    far.destroy()
  })
  far.once('close', () => near.destroy())
  passOn(near, far)
  passOn(far, near)
}).listen(0, '127.0.0.1', BACKLOG, () => process.send?.((server.address() as AddressInfo).port))

process.on('message', () => {
  process.send?.({ open, peak })
  peak = open
})
process.once('disconnect', () => process.exit(0))

/** In order, as timers of one length are. */
function passOn(from: Socket, to: Socket): void {
  from.on('data', (bytes) => void setTimeout(() => to.write(bytes), oneWayMilliseconds))
  from.once('end', () => void setTimeout(() => to.end(), oneWayMilliseconds))
  from.on('error', () => to.destroy())
}
