/**
 * What greylisting and busy servers decide by, as a server of Postfix's policy protocol on loopback: the first time it
 * is asked about a recipient whose local part is `grey` or `busy`, it puts the mail off; then it minds nothing.
 */
import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'

export const GREYLISTED = '451 4.7.1 Greylisted, please try again later'
export const BUSY = '421 4.3.2 Too busy now, closing'

export interface AdmissionPolicy {
  port: number
  close(): Promise<void>
}

export async function startAdmissionPolicy(): Promise<AdmissionPolicy> {
  const seen = new Set<string>()
  const sockets = new Set<Socket>()
  const decide = (recipient: string): string => {
    if (seen.has(recipient)) return 'DUNNO'
    seen.add(recipient)
    if (recipient.startsWith('grey@')) return GREYLISTED
    return recipient.startsWith('busy@') ? BUSY : 'DUNNO'
  }
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => sockets.delete(socket))
    let text = ''
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString()
      for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
        const recipient = /^recipient=(.*)$/m.exec(text.slice(0, end))?.[1] ?? ''
        text = text.slice(end + 2)
        socket.write(`action=${decide(recipient)}\n\n`)
      }
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}
