/**
 * A TCP proxy that makes the other side far away: every piece of data is passed on after a one-way delay. A process of
 * its own, so that its timers cost the measured server nothing. Arguments: target port, one-way delay in milliseconds.
 *
 * Tells the bench its port, and on any message how many connections it had at once since the last one, and what they
 * did (`connection-work.ts`). Ends with the bench.
 */
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { createWorkCount } from './connection-work.ts'

const [targetPort = 0, oneWayMilliseconds = 0] = process.argv.slice(2).map(Number)
const BACKLOG = 4_096
const work = createWorkCount(() => performance.now())
let open = 0
let peak = 0

const server = createServer({ allowHalfOpen: true, noDelay: true }, (near) => {
  const seen = work.connection()
  peak = Math.max(peak, ++open)
  const far = connect({ host: '127.0.0.1', port: targetPort, allowHalfOpen: true, noDelay: true })
  near.once('close', () => {
    open--
    seen.ended()
    far.destroy()
  })
  far.once('close', () => near.destroy())
  near.on('data', seen.said)
  passOn(near, far)
  passOn(far, near, seen.heard)
}).listen(0, '127.0.0.1', BACKLOG, () => process.send?.((server.address() as AddressInfo).port))

process.on('message', () => {
  process.send?.({ peak, ...work.take() })
  peak = open
})
process.once('disconnect', () => process.exit(0))

/** In order, as timers of one length are. */
function passOn(from: Socket, to: Socket, passed: (bytes: Buffer) => void = () => {}): void {
  from.on(
    'data',
    (bytes) =>
      void setTimeout(() => {
        to.write(bytes)
        passed(bytes)
      }, oneWayMilliseconds),
  )
  from.once('end', () => void setTimeout(() => to.end(), oneWayMilliseconds))
  from.on('error', () => to.destroy())
}
