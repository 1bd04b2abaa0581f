/** Entry of the thread that reads DMARC and TLS reports. Each call gets its reading; what is thrown is the caller's. */
import { parentPort, type MessagePort } from 'node:worker_threads'
import { answerThreadChannel } from '../../base/threads/thread-channel.ts'
import { readAuthenticationReport } from '../../mail/authentication/read-authentication-report.ts'

function serveReports(port: MessagePort): void {
  answerThreadChannel(port, (calls) => {
    for (const { argument, resolve, reject } of calls) {
      try {
        resolve(readAuthenticationReport(argument as Uint8Array))
      } catch (thrown) {
        reject(thrown)
      }
    }
  })
}

if (parentPort !== null) serveReports(parentPort)
