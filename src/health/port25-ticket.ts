/** The text for the hosting provider's support when outbound port 25 is closed. Pure. */
interface TicketFacts {
  hostname: string
  ips: readonly { address: string; hostname: string }[]
  /** Who reads about abuse; null: nobody is named. */
  operator: string | null
  /** Of the check `port25`, where it failed. */
  seen: readonly { address: string; seen: string }[]
}

export function port25Ticket({ hostname, ips, operator, seen }: TicketFacts): string {
  return [
    'Subject: Please open outbound TCP port 25 for our server',
    '',
    'Hello,',
    '',
    `we run our own mail server (${hostname}) on the following addresses and send`,
    'transactional mail to recipients who asked for it. Outbound connections to TCP port 25',
    'do not get through:',
    '',
    ...(seen.length === 0
      ? ips.map(({ address }) => `  ${address}`)
      : seen.map((each) => `  ${each.address}: ${each.seen}`)),
    '',
    'Please open outbound TCP port 25 for these addresses, and set their reverse DNS:',
    '',
    ...ips.map((ip) => `  ${ip.address}  PTR  ${ip.hostname}`),
    '',
    'What we do against abuse:',
    '  - only authenticated applications of ours can send; the server is no open relay',
    '  - SPF, DKIM and DMARC are set for every sending domain',
    '  - hard bounces and complaints stop mail to the address at once',
    '  - new addresses are warmed up with a daily limit',
    ...(operator === null ? [] : [`  - reports of abuse are read and acted on: ${operator}`]),
    '',
    'Thank you.',
    '',
  ].join('\n')
}
