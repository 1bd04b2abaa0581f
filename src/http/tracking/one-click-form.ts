/**
 * Whether a body is the form of RFC 8058 §3.1: `List-Unsubscribe=One-Click`, as a form or in multipart. Never throws;
 * bodies are short (they were read with a limit).
 */
const FIELD = 'List-Unsubscribe'
const VALUE = 'One-Click'
// The boundary of a multipart type, with or without quotes.
const BOUNDARY = /^multipart\/form-data\s*;.*\bboundary=(?:"([^"]+)"|([^\s;"]+))/i
// The name of a part (RFC 7578 §4.2).
const PART_NAME = /^content-disposition:[^\r\n]*;\s*name="?([^"\r\n;]*)"?/im

export function isOneClickForm(body: Buffer, contentType: string | undefined): boolean {
  const text = body.toString('latin1')
  const [, quoted, plain] = BOUNDARY.exec(contentType ?? '') ?? []
  const boundary = quoted ?? plain
  if (boundary === undefined) return new URLSearchParams(text).get(FIELD) === VALUE
  return text.split(`--${boundary}`).some((part) => {
    const end = part.search(/\r?\n\r?\n/)
    const [, name] = PART_NAME.exec(part.slice(0, Math.max(0, end))) ?? []
    return name === FIELD && part.slice(end).trim() === VALUE
  })
}
