/**
 * Messages as the API shows them.
 */
import type { ShownMessage } from '../../src/commands/mail/message-report.ts'
import type { ListedMessageJson } from '../../src/api/message.ts'

export const MESSAGE_ID = 'msg_01kapg6t3vq8x2m5r7w9y4c6de'

export function listedMessage(changes: Partial<ListedMessageJson> = {}): ListedMessageJson {
  return {
    message_id: MESSAGE_ID,
    batch_id: null,
    state: 'queued',
    recipient: 'ada@gmail.com',
    from: 'orders@acme.com',
    subject: 'Order',
    stream: 'transactional',
    tags: {},
    metadata: {},
    isp: null,
    ip: null,
    ip_pool: 'default',
    created_at: 1_795_219_200,
    send_at: null,
    expires_at: 1_795_478_400,
    next_attempt_at: null,
    delivered_at: null,
    bounced_at: null,
    complained_at: null,
    bounce: null,
    opens: 0,
    clicks: 0,
    machine_opens: 0,
    machine_clicks: 0,
    uncertain: false,
    retry_of: null,
    ...changes,
  }
}

/** Bounced in its first attempt. */
export function shownMessage(): ShownMessage {
  const at = 1_795_219_206
  const reply = '550 5.1.1 No such user'
  return {
    ...listedMessage({
      state: 'bounced',
      isp: 'gmail',
      ip: '203.0.113.10',
      bounced_at: at,
      opens: 1,
      machine_opens: 2,
      bounce: { type: 'hard', code: '5.1.1', category: 'invalid_recipient', description: reply, at, late: false },
    }),
    attempts: [
      {
        n: 1,
        at,
        ip: '203.0.113.10',
        mx: 'mx.example.net',
        tls: 'TLSv1.3',
        result: 'bounced',
        reply,
        duration_ms: 840,
      },
    ],
    events: [
      {
        id: 'evt_1',
        event: 'email.bounced',
        timestamp: at,
        data: { message_id: MESSAGE_ID, recipient: 'ada@gmail.com', bounce_type: 'hard', extra: { n: 1 } },
      },
    ],
    transcript: [
      { n: 1, at, ip: '203.0.113.10', mx: 'mx.example.net', dialogue: 'S: 220 hi\r\nC: EHLO x\u001b[2J\r\n' },
    ],
  }
}
