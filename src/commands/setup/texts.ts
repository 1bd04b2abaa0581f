/**
 * What `posthorn setup` writes into posthorn.yaml and pools.yaml. Pure. JSON strings are YAML strings.
 */
import type { SetupIp } from './answers.ts'

export interface ServerTextFacts {
  hostname: string
  operatorEmail: string | null
  /** Their files. */
  certificate: string
  key: string
}

export function serverText({ hostname, operatorEmail, certificate, key }: ServerTextFacts): string {
  return `# yaml-language-server: $schema=/usr/share/posthorn/schema/posthorn.json
#
# Written by \`posthorn setup\`; yours from now on. Every key with its default: /usr/share/posthorn/config/posthorn.yaml
# What you change here, or add in posthorn.d/NN-name.yaml: posthorn check, then posthorn reload.
version: 1
hostname: ${JSON.stringify(hostname)}
operator:
  email: ${JSON.stringify(operatorEmail)}
tls:
  certificates:
    # Self-signed until you put others in their place (certbot, lego, your own authority), then: posthorn reload
    - cert_file: ${JSON.stringify(certificate)}
      key_file: ${JSON.stringify(key)}
`
}

export function poolsText(hostname: string, ips: readonly SetupIp[], isWarmed: boolean): string {
  const warmed = isWarmed ? '\n        warmed: true' : ''
  const entries = ips.map(({ address, source }, index) => {
    const bound = source === null ? '' : `\n        source: ${JSON.stringify(source)}`
    return `      - address: ${JSON.stringify(address)}${bound}
        hostname: ${JSON.stringify(egressName(hostname, index))}${warmed}
`
  })
  return `# yaml-language-server: $schema=/usr/share/posthorn/schema/pools.json
#
# Written by \`posthorn setup\`; yours from now on. Every key: /usr/share/posthorn/config/pools.yaml
# \`hostname\` is the EHLO name: it must lead to the address, and be its reverse name.
version: 1
default_pool: default
pools:
  default:
    ips:
${entries.join('')}`
}

/** The first IP has the name of the server: with one IP there is one name. */
function egressName(hostname: string, index: number): string {
  return index === 0 ? hostname : `mta${index + 1}.${hostname}`
}
