import PostalMime from 'postal-mime'
import t from 'tap'
import { previewMessage } from '../../src/content/preview-message.ts'
import { renderMessage } from '../../src/content/render-message.ts'
import { BASE_URL, input, storedContent, type Change } from './render-input.ts'

function preview(change: Change) {
  return previewMessage({ ...input(change), content: storedContent(change.content) })
}

t.test('a preview shows what would be sent', async (t) => {
  const change: Change = {
    content: {
      html: '<body><a href="https://acme.com/o/{{no}}">{{name}}</a> <a href="https://acme.com/#x">x</a></body>',
      text: null,
      tracking: { opens: true, clicks: true },
      headers: [['X-Own', 'Größe']],
      addressees: { to: { name: 'Ada', address: 'ada@example.net' }, cc: [{ name: null, address: 'cc@example.net' }] },
    },
  }
  const shown = await preview(change)
  const sent = await renderMessage(input(change))
  const mail = await PostalMime.parse(sent)
  t.equal(shown.subject, mail.subject)
  t.equal(shown.html, mail.html?.trim())
  t.equal(shown.text, mail.text?.trim())
  t.strictSame(shown.links, ['https://acme.com/o/1042', 'https://acme.com/#x'])
  const unsigned = sent.subarray(sent.indexOf('\r\nFrom:') + 2)
  t.equal(shown.mimeBytes, unsigned.length)
  t.strictSame(
    shown.headers.map(({ name }) => name),
    [
      'From',
      'To',
      'Cc',
      'Subject',
      'Date',
      'Message-ID',
      'X-Own',
      'X-Sternpost-Ref',
      'Feedback-ID',
      'MIME-Version',
      'Content-Type',
    ],
  )
  t.match(shown.headers, [{ name: 'From', value: 'Acme <orders@acme.com>' }, { value: 'Ada <ada@example.net>' }])
})

t.test('without tracking there are no links, and a mail of text alone has no html', async (t) => {
  t.match(await preview({}), { html: null, text: 'Hi Ada', subject: 'Order 1042', links: [] })
  const html = '<a href="https://acme.com/">x</a>'
  t.match(await preview({ content: { html, tracking: { opens: true, clicks: false } } }), { links: [], html: /<img / })
})

t.test('it tells how much text stands beside the pixel when that is the only image', async (t) => {
  const tracking = { opens: true, clicks: false }
  t.match(await preview({ content: { html: '<p>Hi <b>you</b></p>', tracking } }), { textBesidePixel: 6 })
  const styled = `<title>T</title><style>${'p{color:red}'.repeat(200)}</style><p>Hi</p>`
  t.match(await preview({ content: { html: styled, tracking } }), { textBesidePixel: 2 }, 'what is shown')
  const others = [
    { html: '<p>Hi</p>', tracking: { opens: false, clicks: false } },
    { html: '<p>Hi <IMG src="cid:x"></p>', tracking },
    { html: null, text: 'Hi', tracking },
  ]
  for (const content of others) t.match(await preview({ content }), { textBesidePixel: null })
})

t.test('links that stay as they are are not among the rewritten ones', async (t) => {
  const { links } = await preview({
    content: {
      html: `<a href="{{unsubscribe_url}}">1</a><a href="${BASE_URL}/x">2</a><a href="https://acme.com/">3</a>`,
      unsubscribe: { list: 'news', url: null },
      tracking: { opens: true, clicks: true },
    },
  })
  t.strictSame(links, ['https://acme.com/'])
})
