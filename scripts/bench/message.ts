/**
 * The messages that are measured: html of a given size with a text part. A single send has one recipient and its own
 * content each time; a batch has many recipients with five variables each.
 */
const PARAGRAPH =
  '<p style="margin:0 0 12px">Your order has left the house and is on its way to you. ' +
  'You can follow it <a href="https://shop.bench.test/orders/1042">on this page</a>, as always.</p>\n'

export function messageBody(from: string, recipientDomain: string, htmlBytes: number): (index: number) => string {
  const text = PARAGRAPH.repeat(Math.ceil(htmlBytes / PARAGRAPH.length)).slice(0, htmlBytes)
  const html = `<html><body>\n${text}</body></html>`
  return (index) =>
    JSON.stringify({
      to: `reader-${index}@${recipientDomain}`,
      from,
      subject: `Order ${index}`,
      html,
      text: 'Your order has left the house and is on its way to you.',
    })
}

/** Bodies of `/email/batch`; recipients are numbered through all batches. */
export function batchBody(
  from: string,
  recipientDomain: string,
  { htmlBytes, recipients }: { htmlBytes: number; recipients: number },
): (index: number) => string {
  const greeting = '<p>Dear {{name}}, order {{order}} of {{date}}, {{amount}}, goes to {{city}}.</p>\n'
  const text = greeting + PARAGRAPH.repeat(Math.ceil(htmlBytes / PARAGRAPH.length)).slice(0, htmlBytes - greeting.length)
  return (index) =>
    JSON.stringify({
      from,
      subject: 'Order {{order}}',
      html: `<html><body>\n${text}</body></html>`,
      text: 'Dear {{name}}, your order {{order}} is on its way to you.',
      recipients: Array.from({ length: recipients }, (_, offset) => {
        const number = index * recipients + offset
        return {
          to: `reader-${number}@${recipientDomain}`,
          name: `Reader ${number}`, order: number, date: '21 November', amount: '42.00', city: 'Bern',
        }
      }),
    })
}
