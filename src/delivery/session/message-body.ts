/**
 * The bytes of a message as they go over the wire: between DATA and the final dot, or as the chunk of a BDAT. Pure.
 * Every line end is CRLF, whatever was given. Behind DATA a line that begins with a dot gets a second one: nothing in a
 * message can end it early, or begin another one. What a host reads is the same either way. RFC 5321 §4.5.2, RFC 3030
 * §2; test/README.md "Attacks".
 */
const CR = 0x0d
const LF = 0x0a
const DOT = 0x2e
/** Small enough that a large body follows the peer's pace. */
export const PIECE_BYTES = 64 * 1024

const FINAL_DOT = '.\r\n'
const LINE_END = Buffer.from('\r\n')
/** Behind a body whose last line is open. */
const FINAL_DOT_ON_NEW_LINE = '\r\n.\r\n'

export type MessageBody = ReturnType<typeof createMessageBody>

/** From `provenFrom` on, the bytes are known to be as the wire wants them: they are not looked at. */
export function createMessageBody(bytes: Buffer, provenFrom = bytes.length, doublesDots = true) {
  let position = 0
  /** Of what was read so far: a body begins at the start of a line. */
  let last = LF
  return {
    next(): { piece: Buffer; isLast: boolean } {
      const piece = bytes.subarray(position, position + PIECE_BYTES)
      const isLast = position + piece.length >= bytes.length
      const before = last
      const suspect = Math.min(piece.length, provenFrom - position)
      position += piece.length
      last = piece[piece.length - 1] ?? LF
      const isCleanPiece = isClean(piece, before, isLast, suspect)
      return { piece: isCleanPiece ? piece : rewrite(piece, before, { isLast, doublesDots }), isLast }
    },
    /** Bytes of the message that no piece had yet. */
    left: () => bytes.length - position,
    /** What ends the body, behind its last piece. */
    end: () => (last === LF || last === CR ? FINAL_DOT : FINAL_DOT_ON_NEW_LINE),
  }
}

/** The whole message as one chunk, in pieces; its last line ends, as it does in front of a final dot. */
export function chunkOf(bytes: Buffer, provenFrom?: number): { pieces: Buffer[]; sizeBytes: number } {
  const body = createMessageBody(bytes, provenFrom, false)
  const pieces: Buffer[] = []
  for (let isLast = false; !isLast;) {
    const next = body.next()
    isLast = next.isLast
    pieces.push(next.piece)
  }
  if (body.end() !== FINAL_DOT) pieces.push(LINE_END)
  return { pieces, sizeBytes: pieces.reduce((sum, { length }) => sum + length, 0) }
}

/**
 * Nothing of it has to change. `before`: the byte in front of it; of its own, the first `suspect` are not known. A CR
 * at its end is right when the next piece begins with LF. Most bytes are looked at once: a line end is a control
 * character, and a dot counts only behind one.
 */
function isClean(piece: Buffer, before: number, isLast: boolean, suspect: number): boolean {
  const { length } = piece
  const first = piece[0]
  if (before === CR ? first !== LF : first === LF) return false
  if (before === LF && first === DOT) return false
  for (let index = 0; index < suspect; index++) {
    const byte = piece[index]
    if (byte === undefined || byte > CR) continue
    if (byte === CR && index + 1 < length && piece[index + 1] !== LF) return false
    if (byte === LF && ((index > 0 && piece[index - 1] !== CR) || piece[index + 1] === DOT)) return false
  }
  return !(isLast && piece[length - 1] === CR)
}

type Rewriting = { isLast: boolean; doublesDots: boolean }

function rewrite(piece: Buffer, before: number, { isLast, doublesDots }: Rewriting): Buffer {
  // Each byte becomes two at most, but for a lone CR in front.
  const out = Buffer.alloc(2 * piece.length + 2)
  let length = 0
  let previous = before
  for (const byte of piece) {
    if (previous === CR && byte !== LF) length = out.writeUInt8(LF, length)
    const isLineStart = previous === LF || (previous === CR && byte !== LF)
    if (byte === LF && previous !== CR) length = out.writeUInt8(CR, length)
    if (doublesDots && byte === DOT && isLineStart) length = out.writeUInt8(DOT, length)
    length = out.writeUInt8(byte, length)
    previous = byte
  }
  if (isLast && previous === CR) length = out.writeUInt8(LF, length)
  return out.subarray(0, length)
}
