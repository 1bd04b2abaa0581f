/**
 * What `sternpost setup` was asked for, while a file that is there, and stays, says something else. One warning each: a
 * flag must not look as if it had been heard.
 */
import type { Configuration } from '../../config/load-configuration.ts'
import type { SetupAnswers } from './answers.ts'

export function differences(
  { hostname, operatorEmail, ips, authority }: SetupAnswers,
  isWarmed: boolean,
  { server, pools }: Configuration,
): string[] {
  const found: string[] = []
  const say = (file: string, text: string): void => void found.push(`${file} stays as it is: ${text}`)
  if (hostname !== null && hostname !== server.hostname) {
    say('sternpost.yaml', `its hostname is ${server.hostname}, not ${hostname}; edit it, then restart`)
  }
  const { email } = server.operator
  if (operatorEmail !== null && operatorEmail !== email) {
    say('sternpost.yaml', `its operator.email is ${email ?? 'null'}, not ${operatorEmail}; edit it, then restart`)
  }
  if (authority !== null && server.tls.acme === null) {
    say(
      'sternpost.yaml',
      'it has no tls.acme, so no certificate comes by itself; write it in place of tls.certificates, then restart',
    )
  }
  const known = Object.values(pools.pools).flatMap((pool) => pool.ips)
  for (const { address } of ips.filter((ip) => !known.some((each) => each.address === ip.address))) {
    say('pools.yaml', `it has no ${address}, and mail does not leave from there; add it, then sternpost reload`)
  }
  const cold = known.filter(({ warmed, address }) => !warmed && ips.some((ip) => ip.address === address))
  for (const { address } of isWarmed ? cold : []) {
    say('pools.yaml', `${address} is not warmed there; without a warmup: sternpost ip warmup complete ${address}`)
  }
  return found
}
