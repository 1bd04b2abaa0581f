/**
 * Reads request bodies within bounds (http/README.md "Limits", src/README.md "Bounds").
 *
 * Refused: 413 a body above the limit, by its Content-Length or as it grows; 503 while the bodies under way fill the
 * memory for them, counted as bytes arrive, because a Content-Length is only a promise; 408 one that is too slow; 400
 * one that ends early, or comes in pieces of a few bytes. After a refusal nothing more is read. `Expect: 100-continue`
 * is answered when reading begins.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { SECOND } from '../../base/clock.ts'
import { freeMemory } from '../../base/free-memory.ts'
import { createGrowingBuffer } from '../../base/growing-buffer.ts'
import { ServiceError, type ServiceErrorCode } from '../../base/errors.ts'

export interface BodyLimit {
  bytes: number
  /** What a larger body is called: attachment_too_large for mail, payload_too_large else. */
  code: Extract<ServiceErrorCode, 'attachment_too_large' | 'payload_too_large'>
}

export type BodyReader = ReturnType<typeof createBodyReader>

export interface BodyReaderOptions {
  /** Bodies being received or handled, all requests together. */
  mostBytesUnderWay: number
  /** The rate is judged only after this time. */
  slowAfterMilliseconds: number
  leastBytesPerSecond: number
}

/** src/README.md "Bounds". */
export const BODY_READER_DEFAULTS: BodyReaderOptions = {
  mostBytesUnderWay: 96 * 1024 * 1024,
  slowAfterMilliseconds: 10 * SECOND,
  leastBytesPerSecond: 1024,
}

/** Counted for a body before any of it is there. */
const FIRST_BYTES = 16 * 1024

/** One body being read. */
interface Reading {
  startedAt: number
  received: number
  refuse(error: ServiceError): void
}

export function createBodyReader(options: BodyReaderOptions) {
  const readings = new Set<Reading>()
  let bytesUnderWay = 0
  const timer = setInterval(() => refuseSlow(readings, options), Math.min(SECOND, options.slowAfterMilliseconds))
  timer.unref()

  const take = (bytes: number): void => {
    if (bytesUnderWay + bytes > options.mostBytesUnderWay) {
      throw new ServiceError('unavailable', 'too many large requests at once', { headers: { 'Retry-After': '1' } })
    }
    bytesUnderWay += bytes
  }

  return {
    /** Ends with `release` of as many bytes as were returned, when the caller is done with them. */
    async read(request: IncomingMessage, response: ServerResponse, limit: BodyLimit) {
      // Chunked bodies have no length: they are counted as they come.
      const announced = Number(request.headers['content-length'] ?? 0)
      if (announced > limit.bytes) throw tooLarge(limit)
      if (announced === 0 && request.headers['transfer-encoding'] === undefined) return Buffer.alloc(0)
      if (isThere(request, announced)) {
        take(announced)
        const whole: Buffer = request.read()
        return whole
      }
      // The client left while its key was looked up: nothing would be heard of this body any more.
      if (request.destroyed) throw endedEarly(request.errored)
      const reserved = Math.min(announced, FIRST_BYTES)
      take(reserved)
      if (request.headers.expect !== undefined) response.writeContinue()
      const reading: Reading = { startedAt: performance.now(), received: 0, refuse: () => {} }
      readings.add(reading)
      try {
        return await collect(request, reading, { limit, most: announced || limit.bytes, reserved, take })
      } catch (thrown) {
        bytesUnderWay -= Math.max(reserved, reading.received)
        throw thrown
      } finally {
        readings.delete(reading)
      }
    },
    release: (bytes: number) => void (bytesUnderWay -= bytes),
    stop: () => clearInterval(timer),
  }
}

/** Most bodies have come with their head: then there is nothing to wait for. */
function isThere(request: IncomingMessage, announced: number): boolean {
  return announced > 0 && request.complete && request.readableLength === announced
}

interface CollectOptions {
  limit: BodyLimit
  /** Bytes that can come. */
  most: number
  reserved: number
  take(bytes: number): void
}

function collect(request: IncomingMessage, reading: Reading, options: CollectOptions): Promise<Buffer> {
  const { limit, most, reserved, take } = options
  return new Promise((resolve, reject) => {
    const kept = createGrowingBuffer(most)
    let pieces = 0
    const refuse = (error: unknown): void => {
      request.off('data', onData)
      request.pause()
      reject(error)
    }
    const onData = (chunk: Buffer): void => {
      const received = reading.received + chunk.length
      if (received > limit.bytes) return refuse(tooLarge(limit))
      try {
        if (received > reserved) take(received - Math.max(reserved, reading.received))
      } catch (thrown) {
        return refuse(thrown)
      }
      reading.received = received
      kept.add(chunk)
      freeMemory(chunk)
      pieces += 1
      if (pieces > MOST_FINE_PIECES && received < pieces * LEAST_MEAN_BYTES) refuse(tooFine())
    }
    reading.refuse = refuse
    request.on('data', onData)
    request.once('end', () => resolve(kept.bytes()))
    request.once('error', (cause) => reject(endedEarly(cause)))
  })
}

/** Nobody writes a body like that, and each piece costs some microseconds. */
const MOST_FINE_PIECES = 10_000
const LEAST_MEAN_BYTES = 64

function refuseSlow(readings: Set<Reading>, options: BodyReaderOptions): void {
  for (const reading of readings) {
    const elapsed = performance.now() - reading.startedAt
    const isSlow = reading.received < (elapsed / SECOND) * options.leastBytesPerSecond
    if (elapsed < options.slowAfterMilliseconds || !isSlow) continue
    reading.refuse(new ServiceError('invalid_request', 'the body came too slowly', { status: 408 }))
  }
}

/** Nobody is there any more to read this; the log is. */
function endedEarly(cause: unknown): ServiceError {
  return new ServiceError('invalid_request', 'the body ended early', { status: 400, cause })
}

function tooFine(): ServiceError {
  return new ServiceError('invalid_request', 'the body came in pieces of a few bytes', { status: 400 })
}

function tooLarge(limit: BodyLimit): ServiceError {
  return new ServiceError(limit.code, `the body is larger than ${limit.bytes} bytes`)
}
