/**
 * `sternpost bounce`: mail that came back.
 *
 * `read` says what Sternpost understands of it; needs no server and no configuration. Reads as many files as are named,
 * in their order, one after the other. A file that cannot be read is told on standard error and the others are still
 * read; the exit code then is that of a disk error.
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import type { Command } from 'commander'
import * as wire from '../../api/server.ts'
import { errorText, EXIT } from '../../base/errors.ts'
import { readShippedBounceRules } from '../../config/read-parts.ts'
import { createClassifier } from '../../mail/reply/classify-reply.ts'
import { isOptOut } from '../../mail/report/feedback-report.ts'
import { judgeReported, type ReportJudgement } from '../../mail/report/judge-report.ts'
import { readReport } from '../../mail/report/read-report.ts'
import type { ReportedRecipient, ReportReading } from '../../mail/report/report-reading.ts'
import { jsonText, linesText, localTime, printable, type Columns } from '../shared/text.ts'
import { askPages } from '../shared/api-client.ts'
import { SHIPPED_FOLDER } from '../shared/flag-values.ts'
import { addLocalVerb, addVerb, LIMIT_FLAG, printFirst, type LimitFlags } from '../shared/verb.ts'

interface BounceReadFlags {
  json?: boolean
}

/** As much of a mail as is ever looked at. */
const MOST_BYTES = 1_048_576

export function addBounceCommands(program: Command): void {
  const bounce = program.command('bounce').description('mail that came back')
  addLocalVerb(bounce, 'read <file...>', 'say what a bounce, complaint or automatic answer means', 'returned.eml')
    .option('--json', 'print one JSON object per file, each on a line')
    .action(readFiles)
  const unmatched = 'list the newest bounces and complaints that name no message of ours; with --json also their source'
  addVerb(bounce, 'unmatched', unmatched, '--limit 10')
    .option(...LIMIT_FLAG)
    .action(listUnmatched)
}

const UNMATCHED: Columns<wire.UnmatchedReportJson> = {
  CAME: ({ at }) => localTime(at),
  KIND: ({ kind }) => kind,
  FROM: ({ sender }) => (sender === '' ? '<>' : sender),
  TO: ({ recipient }) => recipient,
  SERVER: (report) => report.remote_address,
}

async function listUnmatched(flags: LimitFlags): Promise<void> {
  const pages = askPages(flags, wire.unmatchedReportSchema, '/v1/admin/unmatched-reports')
  await printFirst(flags, UNMATCHED, pages, { whenNone: 'There are none.', whenMore: '; take a higher --limit.' })
}

function readFiles(files: string[], flags: BounceReadFlags): void {
  const classify = createClassifier(readShippedBounceRules(SHIPPED_FOLDER))
  for (const file of files) {
    let bytes: Buffer
    try {
      bytes = readFileStart(file)
    } catch (thrown) {
      process.stderr.write(`sternpost: ${printable(file)}: ${printable(errorText(thrown))}\n`)
      process.exitCode = EXIT.disk
      continue
    }
    const reading = readReport(bytes)
    const recipients = reading.recipients.map((recipient) => ({
      ...recipient,
      // Of a complaint there is nothing to judge.
      judgement: reading.feedbackType === null ? judgeReported(recipient, classify, null) : undefined,
    }))
    process.stdout.write((flags.json === true ? jsonLine : text)(file, reading, recipients))
  }
}

/** The first MiB; throws the error of the file system. */
function readFileStart(file: string): Buffer {
  const descriptor = openSync(file, 'r')
  try {
    if (fstatSync(descriptor).isDirectory()) throw new Error('is a folder, not a mail')
    const bytes = Buffer.alloc(MOST_BYTES)
    let length = 0
    for (;;) {
      const read = readSync(descriptor, bytes, length, MOST_BYTES - length, null)
      length += read
      if (read === 0 || length === MOST_BYTES) return bytes.subarray(0, length)
    }
  } finally {
    closeSync(descriptor)
  }
}

interface JudgedRecipient extends ReportedRecipient {
  judgement: ReportJudgement | undefined
}

function jsonLine(file: string, reading: ReportReading, recipients: readonly JudgedRecipient[]): string {
  return jsonText({
    file,
    kind: reading.kind,
    recipients: recipients.map(({ address, finalRecipient, action, status, diagnostic, judgement }) => ({
      address,
      ...(finalRecipient === null ? {} : { final_recipient: finalRecipient }),
      action,
      status,
      bounce_type: judgement?.bounceType ?? null,
      category: judgement?.category ?? null,
      // One answer of the kind that needs a second one suppresses nobody.
      suppress: isUnwanted(reading) || judgement?.suppress === 'always',
      diagnostic,
    })),
    feedback_type: reading.feedbackType,
  })
}

function text(file: string, reading: ReportReading, recipients: readonly JudgedRecipient[]): string {
  const feedback = reading.feedbackType === null ? '' : ` (feedback type ${reading.feedbackType})`
  const lines = recipients.flatMap((recipient) => describe(recipient, reading))
  const nobody = recipients.length === 0 && ['bounce', 'complaint'].includes(reading.kind)
  if (nobody) lines.push('  names no recipient: only the address it came to can tell')
  return linesText([`${file}: ${reading.kind}${feedback}`, ...lines])
}

/** inbound/README.md "Complaints". */
function isUnwanted({ kind, feedbackType }: ReportReading): boolean {
  return kind === 'complaint' || isOptOut(feedbackType)
}

function describe(recipient: JudgedRecipient, reading: ReportReading): string[] {
  const { finalRecipient, action, status, diagnostic, judgement } = recipient
  const address = finalRecipient === null ? recipient.address : `${recipient.address} (as ${finalRecipient})`
  if (isUnwanted(reading)) return [`  ${address}: suppressed`]
  if (judgement === undefined) return [`  ${address}: ${reading.feedbackType === null ? action : 'not suppressed'}`]
  const { bounceType, category, suppress } = judgement
  const fate = { always: 'suppressed', second: 'suppressed by a second such answer', never: 'not suppressed' }[suppress]
  const facts = `${action}, ${status ?? 'no status'}, ${bounceType} (${category}), ${fate}`
  return [`  ${address}: ${facts}`, ...(diagnostic === '' ? [] : [`    ${diagnostic}`])]
}
