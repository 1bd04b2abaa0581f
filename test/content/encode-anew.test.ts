import { isAscii } from 'node:buffer'
import PostalMime from 'postal-mime'
import t from 'tap'
import { readSubmittedMail } from '../../src/content/mime/submitted-mail.ts'
import { downgradeMail, shortenLines } from '../../src/content/mime/encode-anew.ts'

function encodedAnew(lines: string[], encode: typeof downgradeMail): Buffer {
  const { fields, rest } = encode(readSubmittedMail(Buffer.from(lines.join('\r\n'))))
  return Buffer.concat([Buffer.from(fields.join(''), 'latin1'), rest])
}

const downgraded = (lines: string[]): Buffer => encodedAnew(lines, downgradeMail)
const shortened = (lines: string[]): Buffer => encodedAnew(lines, shortenLines)

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
    'innen in einem Brief \u00e4',
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

const LONG = 'long '.repeat(300)

t.test('a part with a line above 998 octets is encoded anew, every other byte stays', async (t) => {
  const part = (body: string, ...fields: string[]): string => [...fields, '', body].join('\r\n')
  const kept = [
    part('8 bits: \u00e4', 'Content-Type: text/plain; charset=utf-8', 'Content-Transfer-Encoding: 8bit'),
    part('x'.repeat(998), 'Content-Type: text/html'),
    part(`Subject: x\r\n\r\n${LONG}`, 'Content-Type: message/rfc822'),
    part(`--s\r\n\r\n${LONG}\r\n--s--`, 'Content-Type: multipart/signed; boundary=s'),
    part(LONG, 'Content-Transfer-Encoding: x-own'),
  ]
  const html = part(`<p>${LONG}\u00e4</p> \r\n.`, 'Content-Type: text/html; charset=utf-8')
  const file = part('x'.repeat(999), 'Content-Transfer-Encoding: binary', 'Content-Type: application/json')
  const hyphens = part(`--b${'-'.repeat(2_000)}`, 'X-A: b')
  const cyrillic = part('\u0416'.repeat(500), 'Content-Type: text/plain; charset=utf-8')
  const mail = [
    'From: a@b.test',
    'Content-Type: multipart/mixed; boundary="b"',
    'Content-Transfer-Encoding: 8bit',
    '',
    LONG,
  ]
  const all = [...kept, html, file, hyphens, cyrillic]
  const made = shortened([...mail, ...all.flatMap((each) => ['--b', each]), '--b--', LONG])
  const [before, ...parts] = made.toString().split('\r\n--b\r\n')
  t.equal(before, [...mail.slice(0, 3), 'MIME-Version: 1.0', ...mail.slice(3)].join('\r\n'))
  t.strictSame(parts.slice(0, kept.length), kept)
  const anew = parts.slice(kept.length)
  for (const each of anew) t.notMatch(each.replace(/--b--[^]*/, ''), /[^\n]{999}/)
  t.match(anew, [
    /^Content-Type: text\/html; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n<p>long /,
    /^Content-Type: application\/json\r\nContent-Transfer-Encoding: base64\r\n\r\neHh4/,
    /^X-A: b\r\nContent-Transfer-Encoding: base64\r\n\r\n/,
    /^Content-Type: text\/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n/,
  ])
  const { html: shown, attachments } = await PostalMime.parse(made)
  t.match(shown, `<p>${LONG}\u00e4</p> \n.`)
  const json = attachments.find(({ mimeType }) => mimeType === 'application/json')
  t.equal(Buffer.from(json?.content as ArrayBuffer).toString(), 'x'.repeat(999))
})

t.test('a mail of one text, with lines of 998 and of 999 octets', async (t) => {
  const mail = (length: number): string[] => ['Subject: x', '', 'ab', 'x'.repeat(length), '', '']
  t.equal(String(shortened(mail(998))), mail(998).join('\r\n'))
  const made = shortened(mail(999))
  t.match(
    String(made),
    /^Subject: x\r\nContent-Transfer-Encoding: quoted-printable\r\nMIME-Version: 1\.0\r\n\r\nab\r\nx+=\r\n/,
  )
  t.equal((await PostalMime.parse(made)).text, `ab\n${'x'.repeat(999)}\n\n`)
  for (const odd of [
    ['Content-Type: multipart/mixed; boundary=x', '', '--x', '', LONG],
    ['Content-Transfer-Encoding: base64', '', LONG],
  ]) {
    t.equal(String(shortened(odd)), odd.join('\r\n'))
  }
})
