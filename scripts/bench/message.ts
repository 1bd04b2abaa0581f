/**
 * The messages that are measured: html of a given size with a text part and eight links. A single send has one
 * recipient and its own content each time; a batch has many recipients with five variables each. The peers get the same
 * message as a file, ready to go.
 */
const WORDS =
  'your order has left the house and is on its way to you we pack with care everything that use can be recycled as ' +
  'always thank for buying from our small shop in town parcel should arrive within three working days driver will ' +
  'ring twice if nobody answers it waits at next post office keep this message until then sizes colours differ a ' +
  'little between screens may send back what does not please within thirty days at no cost questions are answered ' +
  'by people who know things they sell every weekday morning evening summer winter garden kitchen table lamp chair'
const STYLES = ['margin:0 0 12px', 'margin:0;padding:8px 16px;color:#334455', 'font:14px/20px Arial,sans-serif']
const LINK = '<p><a href="https://shop.bench.test/orders/1042">See where it is</a></p>\n'
const LINKS = 8
const TEXT = 'Your order has left the house and is on its way to you.'
const GREETING = '<p>Dear {{name}}, order {{order}} of {{date}}, {{amount}}, goes to {{city}}.</p>\n'
const HEAD = '<html><body>\n'
const FOOT = '</body></html>\n'
/** Stands for the number of a message, as long as the digits that the load generator puts in its place. */
export const NUMBER = '#number#'

export interface MessageKind {
  from: string
  recipientDomain: string
  htmlBytes: number
}

export function htmlOf(bytes: number, start = ''): string {
  const room = bytes - HEAD.length - FOOT.length - start.length - LINKS * LINK.length
  const paragraphs = paragraphsOf(room)
  const every = Math.max(1, Math.floor(paragraphs.length / LINKS))
  for (let link = 0; link < LINKS; link += 1) paragraphs.splice(link * (every + 1), 0, LINK)
  const used = start.length + paragraphs.reduce((sum, { length }) => sum + length, 0) + HEAD.length + FOOT.length
  return `${HEAD}${start}${paragraphs.join('')}${' '.repeat(Math.max(0, bytes - used))}${FOOT}`
}

/** Always the same paragraphs of changing words, which compress about as the html of real mail does: to two fifths. */
function paragraphsOf(room: number): string[] {
  const words = WORDS.split(' ')
  const paragraphs: string[] = []
  let state = 1
  const next = (below: number): number => {
    state = (state * 48_271) % 2_147_483_647
    return state % below
  }
  for (let length = 0; ;) {
    const text = Array.from({ length: 10 + next(20) }, () => words[next(words.length)]).join(' ')
    const paragraph = `<p style="${STYLES[next(STYLES.length)]}">${text}.</p>\n`
    length += paragraph.length
    if (length > room) return paragraphs
    paragraphs.push(paragraph)
  }
}

/** The number of a request, in as many digits as NUMBER has characters. */
export function digitsOf(number: number): string {
  return String(number).padStart(NUMBER.length, '0')
}

/** The body of `/email/send` with NUMBER where the number goes; `more` are further fields of the request. */
export function messageBody(
  { from, recipientDomain, htmlBytes }: MessageKind,
  more: Record<string, unknown> = {},
): string {
  return JSON.stringify({
    to: `reader-${NUMBER}@${recipientDomain}`,
    from,
    subject: `Order ${NUMBER}`,
    html: htmlOf(htmlBytes),
    text: TEXT,
    ...more,
  })
}

/** Bodies of `/email/batch`; recipients are numbered through all batches. */
export function batchBody(
  {
    from,
    recipientDomain,
    htmlBytes,
  }: Omit<MessageKind, 'recipientDomain'> & { recipientDomain: string | ((number: number) => string) },
  recipients: number,
  more: Record<string, unknown> = {},
): (index: number) => string {
  const html = htmlOf(htmlBytes, GREETING)
  const domainOf = typeof recipientDomain === 'string' ? () => recipientDomain : recipientDomain
  return (index) =>
    JSON.stringify({
      from,
      subject: 'Order {{order}}',
      html,
      text: `Dear {{name}}. ${TEXT}`,
      ...more,
      recipients: Array.from({ length: recipients }, (_, offset) => {
        const number = index * recipients + offset
        return {
          to: `reader-${number}@${domainOf(number)}`,
          name: `Reader ${number}`,
          order: number,
          date: '21 November',
          amount: '42.00',
          city: 'Bern',
        }
      }),
    })
}

/** The same message as a client of the peers hands it over; lines end with LF, as smtp-source wants them. */
export function messageFile({ from, recipientDomain, htmlBytes }: MessageKind): string {
  const part = (type: string, body: string): string =>
    `--bench\nContent-Type: ${type}; charset=utf-8\nContent-Transfer-Encoding: 7bit\n\n${body}\n`
  return (
    `From: ${from}\nTo: reader@${recipientDomain}\nSubject: Order 1042\n` +
    'Date: Sat, 21 Nov 2026 12:00:00 +0000\nMessage-ID: <1042@bench.test>\nMIME-Version: 1.0\n' +
    'Content-Type: multipart/alternative; boundary=bench\n\n' +
    `${part('text/plain', TEXT)}${part('text/html', htmlOf(htmlBytes))}--bench--\n`
  )
}
