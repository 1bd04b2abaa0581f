/** Starting something of many parts: it succeeds as a whole, or what had started is stopped again, the last first. */
import type { Logger } from '../logger.ts'

/** How to stop what has started, in the order of starting. */
export type Stops = (() => Promise<void>)[]

/** For parts that end their work side by side. */
export async function stopTogether(stops: Stops, logger: Logger): Promise<void> {
  await Promise.all(stops.splice(0).map((stopPart) => stopOne(stopPart, logger)))
}

/** One part that fails to stop must not keep the others open. */
async function stopOne(stopPart: () => Promise<void>, logger: Logger): Promise<void> {
  await stopPart().catch((thrown: unknown) => logger.error({ err: thrown }, 'a part did not stop'))
}

/** `start` notes in `stops` what it has started; when it fails, all that is stopped again, the last first. */
export async function startWhole<Whole>(
  logger: Logger,
  start: (stops: Stops, stop: () => Promise<void>) => Promise<Whole>,
): Promise<Whole> {
  const stops: Stops = []
  const stop = async (): Promise<void> => {
    for (const stopPart of stops.splice(0).toReversed()) await stopOne(stopPart, logger)
  }
  try {
    return await start(stops, stop)
  } catch (thrown) {
    await stop()
    throw thrown
  }
}
