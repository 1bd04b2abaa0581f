/**
 * The content of a file that may be packed with gzip or in a zip archive (RFC 1952, RFC 1951). Never gives more bytes
 * than asked for, whatever a bomb unpacks to. Of a zip archive: exactly one file, stored or deflated, with the size and
 * the checksum that it declares. What cannot be unpacked is a clear sentence, never an error.
 */
import { crc32, gunzipSync, inflateRawSync } from 'node:zlib'

const GZIP_START = 0x1f8b
const ZIP_START = 0x504b0304
const ZIP_DIRECTORY = 0x504b0102
const ZIP_END = 0x504b0506
const ZIP_END_BYTES = 22
const DIRECTORY_ENTRY_BYTES = 46
const LOCAL_HEADER_BYTES = 30
/** A comment behind the end may have so many bytes. */
const MOST_COMMENT_BYTES = 65_535
const STORED = 0
const DEFLATED = 8
const ENCRYPTED = 1

export function isPacked(file: Buffer): boolean {
  return isGzip(file) || isZip(file)
}

/** The bytes, or why there are none. */
export function unpackFile(file: Buffer, mostBytes: number): Buffer | string {
  if (isZip(file)) return unzip(file, mostBytes)
  if (isGzip(file)) return inflated('gzip', mostBytes, () => gunzipSync(file, { maxOutputLength: mostBytes }))
  return file.length > mostBytes ? tooLarge(mostBytes) : file
}

function isGzip(file: Buffer): boolean {
  return file.length > 2 && file.readUInt16BE(0) === GZIP_START
}

function isZip(file: Buffer): boolean {
  return file.length > 4 && file.readUInt32BE(0) === ZIP_START
}

function inflated(what: string, mostBytes: number, inflate: () => Buffer): Buffer | string {
  try {
    return inflate()
  } catch (thrown) {
    const isLarge = thrown instanceof RangeError
    return isLarge ? tooLarge(mostBytes) : `the ${what} file is cut or damaged`
  }
}

function tooLarge(mostBytes: number): string {
  return `the report has more than ${mostBytes} bytes unpacked`
}

/** One file as the directory of the archive describes it. */
interface ZipEntry {
  isEncrypted: boolean
  method: number
  checksum: number
  packedBytes: number
  bytes: number
  localHeader: number
}

function unzip(archive: Buffer, mostBytes: number): Buffer | string {
  const entry = onlyEntry(archive)
  if (typeof entry === 'string') return entry
  if (entry.isEncrypted) return 'the zip archive is encrypted'
  if (entry.bytes > mostBytes) return tooLarge(mostBytes)
  const packed = packedBytesOf(archive, entry)
  if (packed === undefined) return 'the zip archive is cut or damaged'
  const content = contentOf(packed, entry, mostBytes)
  if (typeof content === 'string') return content
  const isWhole = content.length === entry.bytes && crc32(content) === entry.checksum
  return isWhole ? content : 'the file in the zip archive is not what its directory says'
}

function contentOf(packed: Buffer, { method, bytes }: ZipEntry, mostBytes: number): Buffer | string {
  if (method === STORED) return packed
  if (method !== DEFLATED) return 'the zip archive uses a compression that is not supported'
  // An empty file still needs room for one byte.
  return inflated('zip', mostBytes, () => inflateRawSync(packed, { maxOutputLength: Math.max(1, bytes) }))
}

function onlyEntry(archive: Buffer): ZipEntry | string {
  const end = endOfArchive(archive)
  if (end === undefined) return 'the zip archive is cut or damaged'
  const entries = archive.readUInt16LE(end + 10)
  if (entries !== 1) return `the zip archive holds ${entries} files, a report is one`
  const start = archive.readUInt32LE(end + 16)
  const isThere = start + DIRECTORY_ENTRY_BYTES <= end && archive.readUInt32BE(start) === ZIP_DIRECTORY
  if (!isThere) return 'the zip archive is cut or damaged'
  return {
    isEncrypted: (archive.readUInt16LE(start + 8) & ENCRYPTED) !== 0,
    method: archive.readUInt16LE(start + 10),
    checksum: archive.readUInt32LE(start + 16),
    packedBytes: archive.readUInt32LE(start + 20),
    bytes: archive.readUInt32LE(start + 24),
    localHeader: archive.readUInt32LE(start + 42),
  }
}

function endOfArchive(archive: Buffer): number | undefined {
  const last = archive.length - ZIP_END_BYTES
  for (let at = last; at >= Math.max(0, last - MOST_COMMENT_BYTES); at--) {
    if (archive.readUInt32BE(at) === ZIP_END) return at
  }
  return undefined
}

function packedBytesOf(archive: Buffer, { localHeader, packedBytes }: ZipEntry): Buffer | undefined {
  if (localHeader + LOCAL_HEADER_BYTES > archive.length) return undefined
  if (archive.readUInt32BE(localHeader) !== ZIP_START) return undefined
  const lengths = archive.readUInt16LE(localHeader + 26) + archive.readUInt16LE(localHeader + 28)
  const start = localHeader + LOCAL_HEADER_BYTES + lengths
  return start + packedBytes > archive.length ? undefined : archive.subarray(start, start + packedBytes)
}
