/** Where complaints of readers are to be had, and what to enter there (health/README.md "Checks"). Pure. */
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
