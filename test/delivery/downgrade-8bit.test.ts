import { isAscii } from 'node:buffer'
import PostalMime from 'postal-mime'
import t from 'tap'
import { readSubmittedMail } from '../../src/content/mime/submitted-mail.ts'
import { downgradeMail } from '../../src/delivery/session/downgrade-8bit.ts'

function downgraded(lines: string[], encoding: BufferEncoding = 'utf8'): Buffer {
  const { fields, rest } = downgradeMail(readSubmittedMail(Buffer.from(lines.join('\r\n'), encoding)))
  return Buffer.concat([Buffer.from(fields.join(''), 'latin1'), rest])
}

const TEXT = ['Gr\u00fc\u00dfe, \u20ac 5 = viel', '', '.ein Punkt ', `${'lang '.repeat(30)}\u00e4`, '']

t.test('a text of 8 bits becomes quoted-printable and reads the same', async (t) => {
  const bytes = downgraded([
    'From: a@b.test',
    'Content-Type: text/plain; charset=utf-8',
    'Content-Transfer-Encoding: 8bit',
    '',
    ...TEXT,
  ])
  t.ok(isAscii(bytes))
  t.match(
    String(bytes),
    /^From: a@b\.test\r\nContent-Type: .+\r\nContent-Transfer-Encoding: quoted-printable\r\nMIME-Version: 1\.0\r\n\r\n/,
  )
  t.equal((await PostalMime.parse(bytes)).text?.trimEnd(), TEXT.join('\n').trimEnd())
})

t.test('each part of a mail is made fit by itself', async (t) => {
  const mail = [
    'From: a@b.test',
    'MIME-Version: 1.0',
    'Content-Type: multipart/mixed; boundary="out"',
    'Content-Transfer-Encoding: 8bit',
    '',
    'pr\u00e4ambel',
    '--out',
    'Content-Type: multipart/alternative; boundary=in',
    '',
    '--in',
    'Content-Type: text/plain; charset=utf-8',
    'Content-Transfer-Encoding: 8bit',
    '',
    ...TEXT,
    '--in',
    'Content-Type: text/html; charset=utf-8',
    'Content-Transfer-Encoding: quoted-printable',
    '',
    '<p>=C3=A4</p>',
    '--in--',
    '--out',
    'Content-Type: application/octet-stream; name=x.bin',
    'Content-Transfer-Encoding: binary',
    'Content-Disposition: attachment',
    '',
    '\u00e4\u00f6\u00fc',
    '--out',
    'Content-Type: message/rfc822',
    'Content-Transfer-Encoding: 8bit',
    '',
    'From: c@d.test',
    'Content-Type: text/plain; charset=utf-8',
    '',
    'innen \u00e4',
    '--out--',
    '',
  ]
  const bytes = downgraded(mail)
  t.ok(isAscii(bytes))
  const [before, after] = await Promise.all([PostalMime.parse(Buffer.from(mail.join('\r\n'))), PostalMime.parse(bytes)])
  t.equal(after.text, before.text)
  t.equal(after.html, before.html)
  const contents = ({ attachments }: typeof after): string[] =>
    attachments.map(({ content }) =>
      Buffer.from(content as ArrayBuffer)
        .toString()
        .trimEnd(),
    )
  t.strictSame(contents(after), contents(before))
  t.notMatch(String(bytes), /Content-Transfer-Encoding: (?:8bit|binary)/)
  t.match(String(bytes), /<p>=C3=A4<\/p>/, 'what is encoded stays')
})

t.test('what has no clear structure, or is signed by others, stays as it is', async (t) => {
  for (const mail of [
    ['Content-Type: multipart/mixed', '', '\u00e4'],
    ['Content-Type: multipart/mixed; boundary=x', '', '--x', '', '\u00e4'],
    ['Content-Type: text/plain', 'Content-Type: text/html', '', '\u00e4'],
    ['Content-Type: text/plain', 'Content-Transfer-Encoding: base64', '', '\u00e4'],
    ['Content-Type: multipart/signed; boundary=x', '', '--x', 'Content-Type: text/plain', '', '\u00e4', '--x--', ''],
  ]) {
    t.equal(String(downgraded(mail)), mail.join('\r\n'))
  }
  const ascii = ['Content-Type: text/plain', 'Content-Transfer-Encoding: 8bit', '', 'hello', '']
  t.ok(downgraded(ascii).equals(Buffer.from(ascii.join('\r\n'))))
})
