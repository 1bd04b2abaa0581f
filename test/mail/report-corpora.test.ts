/**
 * Real bounces, complaints and replies are read as well as promised (test/README.md "What is promised").
 */
import { readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import { readReport } from '../../src/mail/report/read-report.ts'
import { CORPORA, hasCorpora, scoreBounces, scoreFeedback, scoreReplies } from '../support/corpus-score.ts'

/** Shares that must be reached; what is measured is well above. */
const GOALS: readonly [figure: string, share: number][] = [
  ['recipients, confirmed ones', 0.985],
  ['recipients, all', 0.98],
  ['kind', 0.985],
  // OpenSMTPD calls the end of a message a delay.
  ['no bounce where there is none', 0.96],
  ['status', 0.99],
  ['hard', 0.97],
  ['suppressed rightly', 1],
  ['category', 0.8],
  ['feedback type', 1],
  ['complaint or not', 1],
  ['complaint recipients', 1],
  ['replies classified', 0.96],
  ['replies hard', 0.96],
  ['replies suppressed rightly', 1],
]

const skip = hasCorpora() ? false : 'the corpora are not there'

t.test('no answer is a report, whatever it quotes or has attached', { skip }, async (t) => {
  const folder = `${CORPORA}/bounces/files`
  const marks = ['In-Reply-To: <1@acme.test>', 'Auto-Submitted: auto-replied', 'X-Autoreply: yes']
  const answer = (mark: string, text: string): string =>
    `From: ada@example.org\n${mark}\nContent-Type: multipart/mixed; boundary=away\n\n--away\n\nI am away.\n\n${text}`
  const taken = readdirSync(folder).filter((name) => {
    const mail = readFileSync(`${folder}/${name}`, 'latin1')
    const attached = marks.map((mark) => answer(mark, `--away\nContent-Type: message/rfc822\n\n${mail}\n--away--\n`))
    const quoted = [mail, mail.replaceAll('\n', '\n> ')].map((text) => answer('In-Reply-To: <1@acme.test>', text))
    const kinds = [...attached, ...quoted].map((text) => readReport(Buffer.from(text, 'latin1'), '').kind)
    return kinds.some((kind) => kind !== 'auto-reply' && kind !== 'other')
  })
  t.same(taken, [])
})

t.test('shares of what others collected', { skip }, async (t) => {
  const figures = new Map([...scoreBounces(CORPORA), ...scoreFeedback(CORPORA), ...scoreReplies(CORPORA)])
  for (const [name, share] of GOALS) {
    const { right, of } = figures.get(name) ?? { right: 0, of: 0 }
    t.ok(of > 0 && right / of >= share, `${name}: ${right} of ${of}`)
  }
})
