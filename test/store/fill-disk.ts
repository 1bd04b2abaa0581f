/**
 * A process for the durability tests, run with a limit on the size of its files: accepts large messages until none is
 * taken any more, and prints what happened as one line of JSON.
 *
 * Usage: fill-disk.ts <SqliteLocation as JSON>
 */
import { errorCode } from '../../src/base/errors.ts'
import type { SqliteLocation } from '../../src/store/store-location.ts'
import { openTestStore } from './sqlite-support.ts'
import { acceptRequest, newMessage, sampleContent } from './store-samples.ts'

/** Far more bytes than the limit allows. */
const MESSAGES = 60
const HTML_CHARACTERS = 1_000_000

const location = JSON.parse(process.argv[2] ?? '') as SqliteLocation
const { store, deaths } = await openTestStore(location)
const answered: string[] = []
const codes = new Set<string>()
for (let count = 0; count < MESSAGES; count++) {
  const message = newMessage()
  const content = { ...sampleContent, hasVariables: false, html: 'x'.repeat(HTML_CHARACTERS) }
  try {
    await store.acceptMessages(acceptRequest({ content, messages: [message] }))
    answered.push(message.id)
  } catch (thrown) {
    codes.add(errorCode(thrown))
  }
}
await store.tick()
process.stdout.write(`${JSON.stringify({ answered, codes: [...codes], deaths: deaths.length })}\n`)
process.exit()
