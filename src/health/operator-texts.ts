/**
 * Texts that an operator hands on (health/README.md "Checks"): what to enter where complaints of readers are to be had,
 * what to write to a hosting provider whose port 25 is closed, and what to publish so that mail comes to us by TLS alone.
 * Pure.
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

interface InboundTlsFacts {
  hostname: string
  /** Where mail comes in at, such as the target of return paths. */
  domains: readonly string[]
  /** Of the certificate for the host name; null: it is not known. */
  certificate: { tlsa: string | null; keepsKey: boolean; isOfAuthority: boolean } | null
}

/** MTA-STS (RFC 8461) and TLSA (RFC 7672), for bounces and reports on their way here. */
export function inboundTls({ hostname, domains, certificate }: InboundTlsFacts): string {
  return [
    `So that bounces and reports come to ${hostname} by TLS alone (optional):`,
    '',
    `  MTA-STS, for ${domains.join(', ')} and each return path of a sending domain. Serve this at`,
    '  https://mta-sts.<domain>/.well-known/mta-sts.txt, with a certificate for that name:',
    '',
    'version: STSv1',
    'mode: testing',
    `mx: ${hostname}`,
    'max_age: 604800',
    '',
    ...domains.map((domain) => `_mta-sts.${domain}. IN TXT "v=STSv1; id=1"`),
    '',
    '  Change mode to enforce, and the id, when TLS reports say that nothing fails.',
    '',
    ...tlsaLines(hostname, certificate),
    '',
  ].join('\n')
}

function tlsaLines(hostname: string, certificate: InboundTlsFacts['certificate']): string[] {
  if (certificate === null || certificate.tlsa === null) return ['  TLSA: there is no certificate to name yet.']
  if (!certificate.keepsKey) {
    return [
      '  TLSA: none can be published as it is, since each renewal has another key. Where the zone is signed by DNSSEC:',
      '  set tls.acme.keep_key: true, restart, then look here again.',
    ]
  }
  const change = certificate.isOfAuthority
    ? `The key stays until: sternpost certificate renew ${hostname} --new-key. Publish the new record beside it then.`
    : 'It is the key of the file: whoever changes that publishes the new record two days before, beside this one.'
  return [
    '  TLSA, where the zone is signed by DNSSEC:',
    '',
    `_25._tcp.${hostname}. IN TLSA ${certificate.tlsa}`,
    '',
    `  ${change}`,
  ]
}
