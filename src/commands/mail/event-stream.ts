/**
 * Server-sent events out of a stream of bytes (HTML Standard, section 9.2.6, "Interpreting an event stream").
 *
 * Comments, empty events and unknown fields are skipped. Ends where the stream ends: an event without the empty line
 * behind it is not complete and not given. Throws when one has more than a MiB.
 */
export interface StreamEvent {
  /** The last `id` so far, or an empty text. */
  id: string
  kind: string
  data: string
}

const MOST_CHARACTERS = 1_048_576
const DEFAULT_KIND = 'message'
const BYTE_ORDER_MARK = '\u{feff}'

export async function* readEventStream(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<StreamEvent> {
  let id = ''
  let kind = ''
  let data: string[] = []
  for await (const line of linesOf(pieces)) {
    if (line === '') {
      if (data.length > 0) yield { id, kind: kind === '' ? DEFAULT_KIND : kind, data: data.join('\n') }
      kind = ''
      data = []
      continue
    }
    // A field, and its value behind a colon and one blank; a line that begins with the colon is a comment.
    const [, field = '', value = ''] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? []
    if (field === 'id' && !value.includes('\0')) id = value
    else if (field === 'event') kind = value
    else if (field === 'data') data.push(value)
  }
}

async function* linesOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let rest = ''
  let isStart = true
  for await (const piece of pieces) {
    rest += decoder.decode(piece, { stream: true })
    if (isStart && rest !== '') {
      if (rest.startsWith(BYTE_ORDER_MARK)) rest = rest.slice(1)
      isStart = false
    }
    // A CR at the very end may be half of a line end.
    const lines = rest.split(/\r\n|\n|\r(?!$)/)
    rest = lines.pop() ?? ''
    if (rest.length > MOST_CHARACTERS) throw new Error('an event of the stream has more than a MiB')
    yield* lines
  }
}
