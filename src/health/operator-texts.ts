/**
 * Texts that an operator hands on (health/README.md "Checks"): what to enter where complaints of readers are to be had,
 * and what to write to a hosting provider whose port 25 is closed. Pure.
 */
interface FeedbackFacts {
  complaintAddress: string
  ips: readonly string[]
  /** Sending domains; empty: none, or not known. */
  domains: readonly string[]
  /** `domains.dkim.platform_domain`. */
  platformDomain: string | null
}

export function feedbackLoops({ complaintAddress, ips, domains, platformDomain }: FeedbackFacts): string {
  const signing = platformDomain === null ? domains : [platformDomain]
  const shownDomains = signing.length === 0 ? 'your sending domains' : signing.join(', ')
  return `Complaints only arrive where you have enrolled. Look at each provider's page: what they ask for changes.

  Address to give everywhere   ${complaintAddress}
  IPs                          ${ips.join(', ')}
  Signing domains              ${shownDomains}

  Yahoo, AOL        Complaint Feedback Loop, by DKIM domain      https://senders.yahooinc.com/complaint-feedback-loop/
                    enrol each signing domain, or set domains.dkim.platform_domain and enrol that one
  Microsoft         JMRP (complaints) and SNDS (figures), by IP  https://sendersupport.olc.protection.outlook.com/snds/
                    covers outlook.com, hotmail.com, live.com
  Comcast, others   Universal Feedback Loop, by IP or domain     https://fbl.validity.com/
  Gmail             none per message; the rate is in Postmaster Tools, by domain   https://postmaster.google.com/
                    a complaint count of 0 for Gmail means nothing

Whether anything came in: sternpost doctor feedback inbound
`
}

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
