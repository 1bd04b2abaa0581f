/**
 * The capture server on a free port, keeping what it takes unless a test says otherwise.
 */
import { createLogger } from '../../src/base/logger.ts'
import { createCaptureServer, type CapturedMail, type CaptureServerOptions } from '../../src/capture/capture-server.ts'

export interface CaptureWorld {
  port: number
  mails: CapturedMail[]
  /** The log, as it was written. */
  log: string[]
}

export type CaptureWorldOptions = Pick<CaptureServerOptions, 'clock'> &
  Partial<CaptureServerOptions> & {
    /** As on a live server: messages are taken and dropped. */
    isDropping?: boolean
  }

export async function withCapture(
  { isDropping = false, ...options }: CaptureWorldOptions,
  work: (world: CaptureWorld) => Promise<void>,
): Promise<void> {
  const mails: CapturedMail[] = []
  const log: string[] = []
  const capture = createCaptureServer({
    logger: createLogger({ level: 'debug', write: (line) => void log.push(line) }),
    inboundAddress: () => null,
    ...(isDropping ? {} : { onMail: async (mail: CapturedMail) => void mails.push(mail) }),
    ...options,
  })
  const port = await capture.start(0)
  try {
    await work({ port, mails, log })
  } finally {
    await capture.stop()
  }
}
