/**
 * The message that is measured: html of a given size with a text part, one recipient, its own content each time.
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
