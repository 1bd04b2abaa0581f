/**
 * The rule by which the bench compares mail systems at a long round trip: messages over the time that connections
 * worked on them. Each client here takes a known time for a message; the figure has to be that, whatever else is open.
 */
import t from 'tap'
import { createWorkCount, type ObservedConnection, type WorkCount } from '../../scripts/bench/connection-work.ts'

const ROUND_TRIP = 50
const BODY = 'Subject: Hello\r\n\r\nMAIL FROM:<nobody@example.test>\r\nDATA\r\n..\r\nQUIT\r\n'

interface World extends WorkCount {
  pass(milliseconds: number): void
}

function world(): World {
  let now = 1_000
  return { ...createWorkCount(() => now), pass: (milliseconds) => void (now += milliseconds) }
}

function says(connection: ObservedConnection, text: string): void {
  connection.said(Buffer.from(text))
}

/** One command, or several in one write, and their answers a round trip later. */
function exchange({ pass }: World, connection: ObservedConnection, commands: string, answers: string): void {
  says(connection, commands)
  pass(ROUND_TRIP)
  connection.heard(Buffer.from(answers))
}

function greet(bed: World): ObservedConnection {
  const connection = bed.connection()
  connection.heard(Buffer.from('220 mx.test\r\n'))
  exchange(bed, connection, 'EHLO mta.test\r\n', '250-mx.test\r\n250-PIPELINING\r\n250 8BITMIME\r\n')
  return connection
}

/** As Postfix does over a connection it had put by: three round trips. */
function deliverInSteps(bed: World, connection: ObservedConnection): void {
  exchange(bed, connection, 'RSET\r\n', '250 ok\r\n')
  exchange(bed, connection, 'MAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\n', '250 ok\r\n250 ok\r\n354 go\r\n')
  exchange(bed, connection, `${BODY}.\r\n`, '250 queued\r\n')
}

const rateOf = ({ take }: World): number => {
  const { messages, seconds } = take()
  return messages / seconds
}

t.test('three round trips a message are a third of the messages of one', async (t) => {
  const bed = world()
  const connection = greet(bed)
  for (let count = 0; count < 20; count += 1) deliverInSteps(bed, connection)
  t.equal(bed.take().messages, 20)
  for (let count = 0; count < 20; count += 1) deliverInSteps(bed, connection)
  t.equal(rateOf(bed).toFixed(3), (1_000 / 3 / ROUND_TRIP).toFixed(3))
})

t.test('messages in one flight share its round trip, and a body is no command', async (t) => {
  const bed = world()
  const connection = greet(bed)
  const flight = `MAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nBDAT ${BODY.length} LAST\r\n${BODY}`.repeat(4)
  const half = flight.length / 2
  for (let count = 0; count < 5; count += 1) {
    says(connection, flight.slice(0, half))
    exchange(bed, connection, flight.slice(half), '250 ok\r\n'.repeat(12))
    bed.pass(1_000)
  }
  const { messages, seconds } = bed.take()
  t.equal(messages, 20)
  t.equal(seconds.toFixed(3), ((5 * ROUND_TRIP) / 1_000).toFixed(3))
})

t.test('connections that lie in a cache do not make the others seem slow', async (t) => {
  const bed = world()
  const connections = Array.from({ length: 10 }, () => greet(bed))
  // One at a time, and long rests between: what is open all the time would be 10 connections.
  for (let count = 0; count < 50; count += 1) {
    const connection = connections[count % connections.length]
    if (connection !== undefined) deliverInSteps(bed, connection)
    bed.pass(1_000)
  }
  const { messages, seconds } = bed.take()
  t.equal((messages / seconds).toFixed(3), (1_000 / 3 / ROUND_TRIP).toFixed(3))
  t.equal(seconds.toFixed(3), ((50 * 3 * ROUND_TRIP) / 1_000).toFixed(3))
})

t.test('a client that holds its dot back works meanwhile', async (t) => {
  const bed = world()
  const connection = greet(bed)
  const envelope = 'MAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\n'
  const answers = '250 ok\r\n250 ok\r\n354 go\r\n'
  const held = 14
  bed.pass(400)
  exchange(bed, connection, envelope, answers)
  bed.take()
  for (let count = 0; count < 20; count += 1) {
    // The body goes out when it may, its last piece with the dot and the next envelope.
    says(connection, BODY)
    bed.pass(held)
    exchange(bed, connection, `.\r\n${envelope}`, `250 queued\r\n${answers}`)
  }
  t.equal(rateOf(bed).toFixed(3), (1_000 / (ROUND_TRIP + held)).toFixed(3))
})

t.test('pieces of any size, greetings, goodbyes and lost connections change nothing', async (t) => {
  const bed = world()
  const connection = greet(bed)
  const bytewise: ObservedConnection = {
    said: (bytes) => bytes.forEach((byte) => connection.said(Buffer.from([byte]))),
    heard: (bytes) => bytes.forEach((byte) => connection.heard(Buffer.from([byte]))),
    ended: connection.ended,
  }
  deliverInSteps(bed, bytewise)
  exchange(bed, bytewise, 'QUIT\r\n', '221 bye\r\n')
  bytewise.ended()
  bed.pass(5_000)
  t.same(bed.take(), { messages: 1, seconds: (3 * ROUND_TRIP) / 1_000 })

  const lost = greet(bed)
  exchange(bed, lost, 'MAIL FROM:<a@b.test>\r\n', '250 ok\r\n')
  exchange(bed, lost, 'RCPT TO:<c@d.test>\r\n', '550 no\r\n')
  exchange(bed, lost, 'DATA\r\n', '503 no recipient\r\n')
  bed.pass(1_000)
  says(lost, 'RSET\r\n')
  bed.pass(ROUND_TRIP)
  lost.ended()
  bed.pass(1_000)
  t.same(bed.take(), { messages: 0, seconds: (4 * ROUND_TRIP) / 1_000 })
})
