/**
 * What DMARC and TLS reports say of a domain, as text: who sends in its name and which of them is not this server, what
 * failed, and the next step of the policy. What reporters call themselves comes as plain text from the server. Pure.
 */
import type { AuthenticationJson, DmarcSourceJson } from '../../api/authentication.ts'
import { columnsText, linesText, type Columns } from '../shared/text.ts'

const MOST_NAMED = 5

export function dmarcReport(answer: AuthenticationJson, isTerminal: boolean): string {
  const { dmarc, tls } = answer
  const pieces = [linesText([headLine(answer), ...factLines(answer)])]
  if (dmarc.sources.length > 0) pieces.push(columnsText(COLUMNS, dmarc.sources, isTerminal))
  if (tls.length > 0) pieces.push(linesText(tls.flatMap(tlsLines)))
  return pieces.join('\n')
}

const COLUMNS: Columns<DmarcSourceJson> = {
  SOURCE: ({ ip }) => ip ?? 'others',
  YOURS: ({ known }) => (known ? 'yes' : 'no'),
  MESSAGES: ({ messages }) => messages,
  PASSED: ({ passed }) => passed,
  FAILED: ({ failed }) => failed,
  DKIM: ({ dkim_passed: passed }) => passed,
  SPF: ({ spf_passed: passed }) => passed,
  QUARANTINED: ({ quarantined }) => quarantined,
  REJECTED: ({ rejected }) => rejected,
  LAST: ({ last_day: day }) => day,
}

/** `3 sources send as acme.com; 203.0.113.9 is not yours.` */
function headLine({ domain, dmarc: { reports, sources } }: AuthenticationJson): string {
  if (reports === 0) return `No DMARC report about ${domain} came.`
  const strangers = sources.flatMap(({ ip, known }) => (known ? [] : [ip ?? 'others']))
  const count = sources.length === 1 ? '1 source sends' : `${sources.length} sources send`
  if (strangers.length === 0) return `${count} as ${domain}; all are yours.`
  const left = strangers.length - MOST_NAMED
  const named = [...strangers.slice(0, MOST_NAMED), ...(left > 0 ? [`${left} more`] : [])].join(', ')
  return `${count} as ${domain}; ${named} ${strangers.length === 1 ? 'is' : 'are'} not yours.`
}

function factLines({ from, to, policy, hint, dmarc }: AuthenticationJson): string[] {
  const { reports, reporters, messages, passed, failed } = dmarc
  return [
    `  ${from} to ${to}, as reports claim: messages ${messages}, passed ${passed}, failed ${failed}`,
    `  policy ${policy === null ? 'not found in the DNS' : `p=${policy}`}`,
    ...(reports === 0 ? [] : [`  reports ${reports}, of ${reporters.join(', ')}`]),
    ...(hint === null ? [] : [`  hint   ${hint}`]),
  ]
}

function tlsLines({ domain, successful, failed, failures }: AuthenticationJson['tls'][number]): string[] {
  return [
    `TLS to ${domain}: sessions that were well ${successful}, that failed ${failed}`,
    ...failures.map(({ result, sessions }) => `  ${result}  ${sessions}`),
  ]
}
