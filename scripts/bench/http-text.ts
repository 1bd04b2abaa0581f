/**
 * As much of HTTP/1.1 as the bench reads on its raw connections: where the header ends, and how long the body is.
 * Bodies have a Content-Length on both sides; one without, chunked or not, throws.
 */
export const HEADER_END = '\r\n\r\n'

/** Bytes of the body behind this header. */
export function lengthOfBody(header: string): number {
  const digits = /\r\ncontent-length: *(\d+)/i.exec(header)?.[1] // the field, in any case
  if (digits === undefined) throw new Error(`no Content-Length: ${header}`)
  return Number(digits)
}
