/**
 * Mail that came back: what is read from reports of every shape, and what hostile ones cannot do.
 */
import { readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import { judgeReported } from '../../src/mail/report/judge-report.ts'
import { readReport } from '../../src/mail/report/read-report.ts'
import type { ReportReading } from '../../src/mail/report/report-reading.ts'
import { bounceReport } from '../inbound/report-samples.ts'
import { shippedClassifier } from '../support/corpus-score.ts'

const FIXTURES = new URL('../fixtures/mail/', import.meta.url)

interface ExpectedReading {
  kind: string
  recipients: object[]
  feedbackType?: string
  envelopeId?: string
  messageId?: string
}

const AT_RCPT = '(in reply to RCPT TO command)'
const classify = shippedClassifier()
const read = (text: string): ReportReading => readReport(Buffer.from(text, 'latin1'))
const addressesOf = ({ recipients }: ReportReading): string[] => recipients.map(({ address }) => address)

t.test('every shape of a report is read', async (t) => {
  const expected: Record<string, ExpectedReading> = JSON.parse(readFileSync(new URL('expected.json', FIXTURES), 'utf8'))
  const files = readdirSync(FIXTURES)
    .filter((name) => name.endsWith('.eml'))
    .map((name) => name.slice(0, -4))
  t.strictSame(files.toSorted(), Object.keys(expected).toSorted(), 'each file has its expectation')
  for (const [name, wanted] of Object.entries(expected)) {
    const reading = readReport(readFileSync(new URL(`${name}.eml`, FIXTURES)))
    t.equal(reading.kind, wanted.kind, `kind of ${name}`)
    t.equal(reading.feedbackType, wanted.feedbackType ?? null, `feedback type of ${name}`)
    t.strictSame(
      reading.recipients.map((recipient) => {
        const { address, action, status } = recipient
        const judgement = reading.feedbackType === null ? judgeReported(recipient, classify, null) : undefined
        return { address, action, status, category: judgement?.category ?? null, suppress: judgement?.suppress ?? null }
      }),
      wanted.recipients,
      `recipients of ${name}`,
    )
    t.equal(reading.references.originalEnvelopeId, wanted.envelopeId ?? null, `envelope id of ${name}`)
    if (wanted.messageId === undefined) continue
    t.equal(reading.references.returned.get('message-id'), wanted.messageId, `message id of ${name}`)
    t.equal(reading.references.returned.get('x-sternpost-ref'), 'complaint-token', `reference of ${name}`)
  }
})

const STATUS = 'Final-Recipient: rfc822; a@example.org\nAction: failed\nStatus: 5.1.1\n'
const REPORT =
  'Return-Path: <>\nContent-Type: multipart/report; report-type=delivery-status; boundary="b"\n\n' +
  `--b\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; mx.example\n\n${STATUS}--b--\n`

t.test('line ends of any kind, and what stands before the mail, make no difference', async (t) => {
  const forms = [
    REPORT,
    REPORT.replaceAll('\n', '\r\n'),
    REPORT.replaceAll('\n', '\r'),
    REPORT.replaceAll('\n', '\r\r\n'),
    `From MAILER-DAEMON Mon Mar  3 10:00:00 2025\n${REPORT}`,
    `\n\n${REPORT}`,
    REPORT.replace('Return-Path: <>\n', 'Return-Path: <>\r\n'),
    REPORT.replace('--b--\n', ''),
    REPORT.replace('; report-type=delivery-status', ''),
    REPORT.replace('boundary="b"', 'Boundary=b '),
    REPORT.replace('message/delivery-status\n\n', 'message/delivery-status\n'),
    `Broken line without a colon\nSubject: x\n${REPORT}`,
  ]
  for (const form of forms) {
    const reading = read(form)
    t.equal(reading.kind, 'bounce', JSON.stringify(form.slice(0, 60)))
    t.strictSame(addressesOf(reading), ['a@example.org'], JSON.stringify(form.slice(0, 60)))
  }
})

t.test('a recipient is the mailbox that is named, whatever is written around it', async (t) => {
  const cases: [field: string, address: string][] = [
    ['rfc822; a@example.org', 'a@example.org'],
    ['rfc822;<a@example.org>', 'a@example.org'],
    ['a@example.org', 'a@example.org'],
    ['RFC822; "A B" <a@example.org>', 'a@example.org'],
    ['rfc822; a@example.org (expanded)', 'a@example.org'],
    ['rfc822; "a b"@example.org', '"a b"@example.org'],
    ['rfc822; A@EXAMPLE.ORG', 'A@EXAMPLE.ORG'],
    ['rfc822; name', 'name'],
    ['utf-8; ä@example.org', 'ä@example.org'],
    ["rfc822; o'neil+x@example.org", "o'neil+x@example.org"],
    ['rfc822; SMTP:a@example.org', 'a@example.org'],
    ['utf-8; \\x{E4}@example.org', 'ä@example.org'],
  ]
  for (const [field, address] of cases) {
    const reading = readReport(Buffer.from(REPORT.replace('rfc822; a@example.org', () => field)))
    t.strictSame(addressesOf(reading), [address], field)
  }
  const original = 'rfc822; /var/mail/a\nOriginal-Recipient: rfc822; b@example.org'
  const other = REPORT.replace('rfc822; a@example.org', original)
  t.strictSame(addressesOf(read(other)), ['b@example.org'], 'the original one where the final one is a path')
})

t.test('the status is the one that says most', async (t) => {
  const cases: [status: string, diagnostic: string, expected: string][] = [
    ['5.0.0', '550 5.7.1 denied', '5.7.1'],
    ['5.1.1', '550 denied', '5.1.1'],
    ['5.1.1', '550 5.0.0 denied', '5.1.1'],
    ['4.4.7', '554 4.4.7 expired <421 4.4.2 timed out>', '4.4.2'],
    ['5.1.1', '550 host 192.5.1.1.2 denied', '5.1.1'],
    ['5.0.0', 'no (#5.2.2)', '5.2.2'],
    ['5.0.0', '250 2.1.5 ok, 451 4.3.0 disk', '4.3.0'],
    ['5.0.0', '550 denied (Exim 4.96.1)', '5.0.0'],
    ['5.0.0', '550 denied by Exim v4.7.1, Postfix/2.5.1 and OpenSMTPD 5.4.2', '5.0.0'],
    ['5.0.0', '550 Exim 4.92.3 said: SMTP 5.1.1', '5.1.1'],
    ['5.0.0', '550 Release 5.7.1 blocked', '5.7.1'],
    ['5.0.0', '550 Courier 5.1.1 no', '5.1.1'],
    ['5.0.0', '550 mail server version 5.1.1 unknown user', '5.1.1'],
    ['5.0.0', 'host mx/5.1.1 said', '5.1.1'],
  ]
  for (const [status, diagnostic, expected] of cases) {
    const text = REPORT.replace('Status: 5.1.1', `Status: ${status}\nDiagnostic-Code: smtp; ${diagnostic}`)
    t.equal(read(text).recipients[0]?.status, expected, `${status} with ${diagnostic}`)
  }
})

t.test('a code of class 4 is no last word on the address, even where the report is one', async (t) => {
  const judged = (action: string, status: string, diagnostic: string): object | undefined => {
    const [recipient] = read(
      REPORT.replace(
        'failed\nStatus: 5.1.1',
        `${action}\nStatus: ${status}\n` + `Diagnostic-Code: smtp; ${diagnostic}`,
      ),
    ).recipients
    return recipient && judgeReported(recipient, classify, null)
  }
  const unknown = { category: 'invalid_recipient', bounceType: 'soft', suppress: 'never' }
  t.match(judged('failed', '4.1.1', '450 4.1.1 user unknown'), unknown)
  t.match(judged('failed', '5.0.0', `450 user unknown ${AT_RCPT}`), unknown, 'by a server that tells no cause')
  t.match(judged('failed', '5.4.7', `5.4.7 - expired, 450 user unknown ${AT_RCPT}`), unknown)
  t.match(judged('failed', '5.0.0', `550 user unknown ${AT_RCPT}`), {
    ...unknown,
    bounceType: 'hard',
    suppress: 'always',
  })
  t.match(judged('delayed', '5.1.1', '550 5.1.1 user unknown'), unknown)
  t.match(judged('failed', '5.1.1', '550 5.1.1 user unknown'), { ...unknown, bounceType: 'hard', suppress: 'always' })
})

t.test('what stands around a report is no reason where a code names one', async (t) => {
  const text = REPORT.replace('--b\n', '--b\n\nNot delivered.\n-- \nchecked by virus@scanner.example\n--b\n')
  const [recipient] = read(text).recipients
  t.match(recipient && judgeReported(recipient, classify, null), { category: 'invalid_recipient' })
})

const mail = (fields: string[], text: string): string =>
  [...fields, 'Content-Type: text/plain; charset=utf-8', '', text].join('\n')
const readUtf8 = (text: string, sender?: string): ReportReading => readReport(Buffer.from(text), sender)
const RETURNED = 'Received: from us\nFrom: orders@acme.test\nTo: a@example.org\nSubject: Order\n'

t.test('a bounce is what a server wrote, in whatever language; people write about bounces, too', async (t) => {
  const refusal = `Uw bericht:\n\na@example.org\n#550 5.1.1 weg\n\n${RETURNED}`
  const server = mail(['From: Postmaster <postmaster@example.org>', 'Subject: Hmm'], refusal)
  t.match(readUtf8(server), { kind: 'bounce', recipients: [{ address: 'a@example.org', status: '5.1.1' }] })
  t.equal(readUtf8(mail(['From: Ada <ada@example.org>', 'Subject: Hmm'], refusal)).kind, 'other')

  const list = mail(['From: helpdesk@example.org', 'Subject: failure notice'], '<a@example.org>:\nno mailbox here')
  t.equal(readUtf8(list).kind, 'other')
  t.equal(readUtf8(list, 'helpdesk@example.org').kind, 'other')
  t.equal(readUtf8(list, '').kind, 'bounce', 'the null sender of the envelope is a sign')

  const question = 'Why "550 5.1.1 user unknown" for bob@example.org? It could not be delivered.'
  t.equal(readUtf8(mail(['From: Ada <ada@example.org>', 'Subject: Re: your bounce'], question)).kind, 'other')
  const quoted = '> could not be delivered\n> <bob@example.org>: host mx said: 550 5.1.1 unknown'
  const forwarded = mail(['From: Ada <ada@example.org>', 'Subject: Fwd: Undelivered Mail'], quoted)
  t.equal(readUtf8(forwarded).kind, 'other')
  t.equal(readUtf8(`${forwarded}\n\n${RETURNED}`).kind, 'bounce', 'passed on as a whole')
})

t.test('what an answer quotes or has attached is about others', async (t) => {
  const quoted = mail([], `I got this:\n\nReporting-MTA: dns; mx.example\n\n${STATUS}`)
  const attached = `Content-Type: multipart/mixed; boundary=m\n\n--m\nContent-Type: message/rfc822\n\n${REPORT}--m--\n`
  const person = 'From: Ada <ada@example.org>\n'
  const notification = mail([], JSON.stringify({ notificationType: 'Complaint', complaint: {} }))
  for (const text of [quoted, attached, notification]) {
    t.equal(readUtf8(`${person}In-Reply-To: <1@acme.test>\n${text}`, '').kind, 'other')
    t.equal(readUtf8(`${person}Auto-Submitted: auto-replied\n${text}`, '').kind, 'auto-reply')
  }
  t.equal(readUtf8(`${person}Subject: AW: Delivery failed\n${quoted}`).kind, 'other')
  t.equal(readUtf8(`${person}Subject: What is this?\n${quoted}`, 'ada@example.org').kind, 'other')
  const away = mail([person.trim(), 'Subject: Re: Delivery failed: your parcel'], 'I cannot read mail until Monday.')
  t.equal(readUtf8(away, '').kind, 'other')
  t.equal(readUtf8(`From: MAILER-DAEMON@example.org\nIn-Reply-To: <1@acme.test>\n${quoted}`).kind, 'bounce')
})

t.test('a report that was passed on more than once is read as if it had come alone', async (t) => {
  const passOn = (text: string, boundary: string): string =>
    `From: ada@example.org\nSubject: Fwd\nContent-Type: multipart/mixed; boundary=${boundary}\n\n` +
    `--${boundary}\n\nsee below\n--${boundary}\nContent-Type: message/rfc822\n\n${text}--${boundary}--\n`
  const bare = `From: ada@example.org\nContent-Type: message/rfc822\n\n${REPORT}`
  for (const text of [passOn(REPORT, 'm'), passOn(passOn(REPORT, 'm'), 'n'), bare, passOn(bare, 'm')]) {
    t.match(readUtf8(text), { kind: 'bounce', recipients: [{ address: 'a@example.org' }] })
  }
})

t.test('a helpdesk that returns a mail, and a filter of the mailbox, report as servers do', async (t) => {
  const refusal = '<a@example.org>:\n550 5.1.1 no such user\n\n'
  const fields = ['From: helpdesk@example.org', 'Subject: failure notice', 'Auto-Submitted: auto-replied']
  t.equal(readUtf8(`${mail(fields, refusal)}${RETURNED}`).kind, 'bounce')
  const receipt = mail(
    ['From: ada@example.org', 'Subject: Automatically rejected mail', 'Content-Type: multipart/report; boundary=b'],
    '--b\n\nYour message to <ada@example.org> was automatically rejected:\nno\n--b\n' +
      'Content-Type: message/disposition-notification\n\nDisposition: automatic-action; deleted\n--b--\n',
  )
  t.match(readUtf8(receipt), { kind: 'bounce', recipients: [], unnamed: { action: 'failed' } })
})

t.test('a bounce that calls itself an answer has a refusal with its words', async (t) => {
  const fields = ['Return-Path: <>', 'From: noreply@example.org', 'Auto-Submitted: auto-replied']
  const failed = 'Delivery to the following recipient failed permanently: ada@example.org'
  for (const refusal of ['\n550 user unknown', '\nThe server said: 550 5.1.1 No such user'])
    t.equal(readUtf8(mail([...fields, 'Subject: Undeliverable: Your order'], `${failed}${refusal}`)).kind, 'bounce')
})

t.test('an answer repeats the subject of our mail, and gives the number of a telephone', async (t) => {
  const away = 'I cannot be reached until Monday. Bob is there for you: (503) 555-0100.'
  const subjects = ['Automatic reply: Your delivery problem', 'Re: Delivery status', 'Auto: Delivery notification']
  for (const subject of subjects) {
    const fields = ['From: ada@example.org', `Subject: ${subject}`, 'Auto-Submitted: auto-replied']
    t.equal(readUtf8(mail(fields, away), '').kind, 'auto-reply', subject)
    t.equal(readUtf8(`${mail(fields, `${away}\n\n`)}${RETURNED}`, '').kind, 'auto-reply', `${subject}, with our mail`)
    t.equal(readUtf8(mail(fields, '550 5.1.1 no such user'), '').kind, 'bounce', `${subject}, with a code`)
  }
})

t.test('a date, a version and a section in an answer are no codes', async (t) => {
  const fields = ['From: ada@example.org', 'Subject: Automatic reply: Delivery failed', 'Auto-Submitted: auto-replied']
  const kindOf = (text: string): string => readUtf8(mail(fields, text), '').kind
  const lost = 'Your message was rejected and could not be delivered.'
  const numbers = ['bis 5.1.26', 'vom 4.5.26 bis 5.5.26', '(5.7.26)', 'status: 4.5.26', 'release 5.1.1', 'Ziffer 5.1.1']
  for (const number of numbers) t.equal(kindOf(`${lost} ${number}\n5.1.1 Terms`), 'auto-reply', number)
  const codes = [
    '#5.1.1',
    '(5.1.1)',
    'Status: 5.1.1',
    'mx said 550 5.7.26 not authenticated',
    '550-5.7.515 Access denied',
  ]
  for (const code of codes) t.equal(kindOf(`${lost} ${code}`), 'bounce', code)
})

t.test('the date of a mail is not the code of its refusal', async (t) => {
  const fields = ['From: postmaster@example.org', 'Subject: Unzustellbar']
  const statusOf = (text: string) => readUtf8(mail(fields, text), '').recipients[0]?.status
  t.equal(statusOf('<a@example.org>\nIhre Mail vom 4.5.26 kam nicht an: 550 user unknown'), null)
  t.equal(statusOf('<a@example.org>\nIhre Mail vom 4.5.26 kam nicht an: 550 5.1.1 user unknown'), '5.1.1')
  const told = [
    'remote refused it, 5.7.26 not authenticated',
    '550 5.7.26 not authenticated',
    'mx said: 5.7.26 not authenticated',
    'failed (#5.7.26)',
  ]
  for (const text of told) t.equal(statusOf(`<a@example.org>: ${text}`), '5.7.26', text)
})

t.test('the address that was mailed, and what became of it', async (t) => {
  const both = (original: string, final: string): string =>
    REPORT.replace(
      'Final-Recipient: rfc822; a@example.org',
      `Original-Recipient: ${original}\nFinal-Recipient: ${final}`,
    )
  const read = (text: string) =>
    readUtf8(text).recipients.map(({ address, finalRecipient }) => [address, finalRecipient])
  t.same(read(both('rfc822; a@example.org', 'rfc822; a@example.org')), [['a@example.org', null]])
  t.same(read(both('rfc822; a@example.org', 'rfc822; u17@mail.local')), [['a@example.org', 'u17@mail.local']])
  t.same(read(both('rfc822; a@example.org', 'x400; /S=a/O=x/')), [['a@example.org', null]])
  for (const form of [
    'dda:SMTP=a@example.org',
    'rfc822;a@example.org',
    'smtp; SMTP:a@example.org',
    'EX:/o=x; a@example.org',
  ]) {
    t.same(read(REPORT.replace('rfc822; a@example.org', form)), [['a@example.org', null]], form)
  }
  const nobody = readUtf8(REPORT.replace('rfc822; a@example.org', 'X400; /S=a/OU=x/PRMD=y/'))
  t.match(nobody, { kind: 'bounce', recipients: [], unnamed: { status: '5.1.1', action: 'failed' } })
})

t.test('OpenSMTPD calls the end of a message a delay', async (t) => {
  const expired = REPORT.replace('Action: failed', 'Action: delayed').replace(
    '5.1.1',
    '4.4.7\nDiagnostic-Code: smtp; Envelope expired',
  )
  t.match(readUtf8(expired), { kind: 'bounce', recipients: [{ action: 'failed', status: '4.4.7' }] })
})

t.test('codes joined by a dash, and refusals of our name', async (t) => {
  t.match(readUtf8(REPORT.replace('5.1.1', '5.0.0\nDiagnostic-Code: smtp; 550-5.2.2 full')), {
    recipients: [{ status: '5.2.2', replyCode: 550 }],
  })
  const name = 'Connected to 192.0.2.1 but my name was rejected. Remote host said: 501 Invalid domain name'
  t.match(readUtf8(REPORT.replace('5.1.1', `5.0.0\nDiagnostic-Code: smtp; ${name}`)), {
    recipients: [{ stage: 'ehlo' }],
  })
})

t.test('subjects of bounces and of automatic answers are known in many languages', async (t) => {
  const bounces = [
    'No se puede entregar: x',
    'Det går inte att leverera: x',
    'Kunne ikke leveres: x',
    'Nie można dostarczyć: x',
    'Nedoručitelné: x',
    'Не удалось доставить: x',
    'Не вдалося доставити: x',
    'Teslim edilemedi: x',
    'Kézbesíthetetlen: x',
    '无法送达: x',
    '無法傳遞: x',
    '配信不能: x',
    '배달되지 않음: x',
    'Δεν ήταν δυνατή η παράδοση: x',
    'לא ניתן למסור: x',
    'Nelivrabil: x',
    'تعذر التسليم: x',
    'Toimittaminen ei onnistu: x',
    'Niet te bestellen: x',
  ]
  for (const subject of bounces) {
    const { kind } = readUtf8(mail(['From: postmaster@example.org', `Subject: ${subject}`], 'a@example.org'))
    t.equal(kind, 'bounce', subject)
  }
  const answers = [
    'OOO Re: x',
    'I am out of office',
    'AW: Abwesenheitsnotiz',
    'Absent du bureau : x',
    'Automatisk svar: x',
    'Automatyczna odpowiedź: x',
    'Automatická odpověď: x',
    'Automatikus válasz: x',
    'Автоматический ответ: x',
    'Автоматична відповідь: x',
    'Otomatik yanıt: x',
    '自动答复: x',
    '自動回覆: x',
    'Αυτόματη απάντηση: x',
    'תשובה אוטומטית: x',
    'Răspuns automat: x',
  ]
  for (const subject of answers) {
    t.equal(readUtf8(mail(['From: ada@example.org', `Subject: ${subject}`], 'away')).kind, 'auto-reply', subject)
  }
  const answer = ['From: ada@example.org', 'Subject: Re: x', 'Auto-Submitted: auto-generated']
  t.equal(readUtf8(mail(answer, 'Got it')).kind, 'other')
  t.equal(readUtf8(mail([...answer, 'In-Reply-To: <x@acme.test>'], 'Got it')).kind, 'auto-reply')
})

t.test('the last line counts without a line end, and a notification ends where its signature begins', async (t) => {
  const header = ['Return-Path: <>', 'From: postmaster@x.example', 'Subject: undeliverable']
  const text = mail(header, '<a@example.org>: 550 relaying denied')
  t.equal(read(text).recipients[0]?.diagnostic, '<a@example.org>: 550 relaying denied')
  const bounce = '{"notificationType":"Bounce","bounce":{"bouncedRecipients":[{"emailAddress":"a@example.org"}]}}'
  const notification = mail(['From: no-reply@sns.example'], `${bounce}\n--\nhttps://sns.example/?x={y}`)
  t.match(read(notification), { kind: 'bounce', recipients: [{ address: 'a@example.org' }] })
})

t.test('a notification of a complaint has the type that the provider told', async (t) => {
  const readType = (complaint: object) =>
    read(mail(['From: no-reply@sns.example'], JSON.stringify({ notificationType: 'Complaint', complaint })))
  t.match(readType({}), { kind: 'complaint', feedbackType: null })
  t.match(readType({ complaintFeedbackType: 'abuse' }), { kind: 'complaint', feedbackType: 'abuse' })
  t.match(readType({ complaintFeedbackType: 'not-spam' }), { kind: 'other', feedbackType: 'not-spam' })
})

t.test('a complaint has the type that it states, and may be about a report or passed on', async (t) => {
  const complaint = (type: string, returned: string): string =>
    'Content-Type: multipart/report; report-type=feedback-report; boundary=f\n\n--f\n' +
    `Content-Type: message/feedback-report\n\nFeedback-Type: ${type}\nVersion: 1\n` +
    `--f\nContent-Type: message/rfc822\n\n${returned}--f--\n`
  for (const type of ['not-spam (by the user)', '(by the user) Not-Spam', 'not-spam;']) {
    t.match(read(complaint(type, RETURNED)), { kind: 'other', feedbackType: 'not-spam' }, type)
  }
  const abuse = { kind: 'complaint', feedbackType: 'abuse' }
  t.match(read(complaint('abuse', REPORT)), abuse, 'about a report')
  const passedOn = `Content-Type: multipart/mixed; boundary=m\n\n--m\nContent-Type: message/rfc822\n\n`
  t.match(read(`${passedOn}${complaint('abuse', RETURNED)}--m--\n`), abuse, 'passed on')
})

t.test('a note that a mail arrived is no bounce, whoever signs it', async (t) => {
  const fields = ['From: postmaster@example.org', 'Subject: Notification: Delivery failed: your parcel']
  const text = mail([...fields, 'Auto-Submitted: auto-notified; owner-email="ada@example.org"'], 'New message.')
  t.equal(readUtf8(text, 'postmaster@example.org').kind, 'auto-reply')
})

t.test('a bounce that returns the header of a mailbox that forwards is no complaint', async (t) => {
  const returned = ['From: orders@acme.com', 'X-HmXmrOriginalRecipient: <ada@example.com>', 'Subject: Order']
  const full = { status: '5.2.2', diagnostic: 'smtp; 552 5.2.2 mailbox full', returned }
  t.match(read(bounceReport(full)), { kind: 'bounce', feedbackType: null, recipients: [{ status: '5.2.2' }] })
  t.match(read(bounceReport({ ...full, action: 'delayed' })), { kind: 'notice', feedbackType: null })
})

t.test('an action is read in the words of real servers, and in doubt the status decides', async (t) => {
  const cases: [line: string, action: string][] = [
    ['Action: failed', 'failed'],
    ['Action: Failure', 'failed'],
    ['Action: expired', 'failed'],
    ['Action: delayed', 'delayed'],
    ['Action: deferred', 'delayed'],
    ['Action: delivered (to mailbox)', 'delivered'],
    ['Action: relayed', 'relayed'],
    ['Action: expanded', 'expanded'],
    ['Action: nonsense', 'failed'],
    ['X: y', 'failed'],
  ]
  for (const [line, action] of cases) {
    t.equal(read(REPORT.replace('Action: failed', line)).recipients[0]?.action, action, line)
  }
  const temporary = REPORT.replace('Action: failed\n', '').replace('5.1.1', '4.4.1')
  t.equal(read(temporary).recipients[0]?.action, 'delayed')
  t.equal(read(temporary).kind, 'notice')
})

t.test('one failure among notes is a bounce', async (t) => {
  const text = REPORT.replace(STATUS, `${STATUS}\nFinal-Recipient: rfc822; b@example.org\nAction: delayed\n`)
  t.equal(read(text).kind, 'bounce')
  t.strictSame(addressesOf(read(text)), ['a@example.org', 'b@example.org'])
})

t.test('limits hold: parts, depth, length, recipients', async (t) => {
  const nested = Array.from(
    { length: 10_000 },
    (_, level) => `Content-Type: multipart/mixed; boundary=b${level}\n\n--b${level}\n`,
  ).join('')
  t.equal(read(nested).kind, 'other', '10,000 nested parts')
  t.equal(read('Content-Type: message/rfc822\n\n'.repeat(30_000)).kind, 'other', '30,000 nested messages')
  const parts = `Content-Type: multipart/mixed; boundary=b\n\n${'--b\n\nx\n'.repeat(100_000)}`
  t.equal(read(parts).kind, 'other', '100,000 parts')
  t.strictSame(addressesOf(read(REPORT.replace('Return-Path: <>', `X: ${'y'.repeat(900_000)}`))), ['a@example.org'])
  t.equal(
    read(`${REPORT.replace('Return-Path: <>', `X: ${'y'.repeat(2_000_000)}`)}`).recipients.length,
    0,
    'what is behind the first MiB is not read',
  )
  const many = REPORT.replace(
    STATUS,
    Array.from(
      { length: 5_000 },
      (_, index) => `Final-Recipient: rfc822; a${index}@example.org\nAction: failed\n\n`,
    ).join(''),
  )
  t.equal(read(many).recipients.length, 1_000)
  const long = read(REPORT.replace('Status: 5.1.1', `Diagnostic-Code: smtp; 550 ${'x\n '.repeat(50_000)}`))
  t.ok((long.recipients[0]?.diagnostic ?? '').length <= 2_048)
})

t.test('nobody can hide control characters or half characters in a diagnostic', async (t) => {
  const text = REPORT.replace('Status: 5.1.1', 'Diagnostic-Code: smtp; 550 a\u0000b\u001b[31mc\td')
  t.equal(read(text).recipients[0]?.diagnostic, '550 a b [31mc d')
  const long = readReport(Buffer.from(REPORT.replace('5.1.1', `5.1.1\nDiagnostic-Code: a${'😀'.repeat(2_000)}`)))
  t.equal(long.recipients[0]?.diagnostic.isWellFormed(), true)
})
