/**
 * Mail as it comes back: bounces, notices and complaints of usual forms, about a message that the test names.
 */
export interface BounceFields {
  action?: string
  status?: string
  diagnostic?: string
  finalRecipient?: string
  originalEnvelopeId?: string
  /** Header of the returned message. */
  returned?: string[]
}

/** RFC 3464, as Postfix writes it. */
export function bounceReport(fields: BounceFields = {}): string {
  const {
    action = 'failed',
    status = '5.1.1',
    diagnostic = 'smtp; 550 5.1.1 <ada@example.com>: no such user',
    finalRecipient = 'ada@example.com',
    originalEnvelopeId,
    returned = ['From: orders@acme.com', 'Subject: Order'],
  } = fields
  return [
    'From: MAILER-DAEMON@mx.example.com (Mail Delivery System)',
    'Subject: Undelivered Mail Returned to Sender',
    'Auto-Submitted: auto-replied',
    'MIME-Version: 1.0',
    'Content-Type: multipart/report; report-type=delivery-status; boundary="b1"',
    '',
    '--b1',
    'Content-Type: text/plain',
    '',
    "I'm sorry to have to inform you that your message could not be delivered.",
    '',
    '--b1',
    'Content-Type: message/delivery-status',
    '',
    'Reporting-MTA: dns; mx.example.com',
    ...(originalEnvelopeId === undefined ? [] : [`Original-Envelope-Id: ${originalEnvelopeId}`]),
    '',
    `Final-Recipient: rfc822; ${finalRecipient}`,
    `Action: ${action}`,
    `Status: ${status}`,
    `Diagnostic-Code: ${diagnostic}`,
    '',
    '--b1',
    'Content-Type: text/rfc822-headers',
    '',
    ...returned,
    '',
    '--b1--',
  ].join('\r\n')
}

/** RFC 5965. */
export function feedbackReport(feedbackType = 'abuse', returned: string[] = ['Subject: Order']): string {
  return [
    'From: fbl@isp.example',
    'Subject: FW: Order',
    'MIME-Version: 1.0',
    'Content-Type: multipart/report; report-type=feedback-report; boundary="b2"',
    '',
    '--b2',
    'Content-Type: text/plain',
    '',
    'This is an email abuse report.',
    '',
    '--b2',
    'Content-Type: message/feedback-report',
    '',
    `Feedback-Type: ${feedbackType}`,
    'User-Agent: ISP/1.0',
    'Version: 1',
    'Original-Rcpt-To: redacted@isp.example',
    '',
    '--b2',
    'Content-Type: message/rfc822',
    '',
    ...returned,
    '',
    'body',
    '',
    '--b2--',
  ].join('\r\n')
}

export const VACATION = [
  'From: ada@example.com',
  'Subject: Out of office',
  'Auto-Submitted: auto-replied',
  '',
  'I am away until Monday.',
].join('\r\n')
