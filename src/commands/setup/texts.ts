/** What `sternpost setup` writes into sternpost.yaml and pools.yaml. Pure. JSON strings are YAML strings. */
import { egressName } from '../../config/source/environment.ts'
import type { SetupAuthority, SetupIp } from './answers.ts'

interface ServerTextFacts {
  hostname: string
  operatorEmail: string | null
  /** null: certificates are in the files. */
  authority: SetupAuthority | null
  certificate: string
  key: string
}

export function serverText({ hostname, operatorEmail, authority, certificate, key }: ServerTextFacts): string {
  const files = `  certificates:
    # Self-signed until you put others in their place (certbot, lego, your own authority), then: sternpost reload
    - cert_file: ${JSON.stringify(certificate)}
      key_file: ${JSON.stringify(key)}
`
  return `# yaml-language-server: $schema=/usr/share/sternpost/schema/sternpost.json
#
# Written by \`sternpost setup\`; yours from now on. Every key with its default:
# /usr/share/sternpost/config/sternpost.yaml
# What you change here, or add in sternpost.d/NN-name.yaml: sternpost check, then sternpost reload.
version: 1
hostname: ${JSON.stringify(hostname)}
operator:
  email: ${JSON.stringify(operatorEmail)}
tls:
${authority === null ? files : acmeText(authority, operatorEmail)}`
}

function acmeText({ directory, caFile }: SetupAuthority, email: string | null): string {
  const ownAuthority = caFile === null ? '' : `    ca_file: ${JSON.stringify(caFile)}\n`
  return `  # Certificates by themselves, ordered and renewed by the server. What it does: sternpost certificate list
  acme:
    directory: ${JSON.stringify(directory)}
    email: ${JSON.stringify(email)}
${ownAuthority}`
}

export function poolsText(hostname: string, ips: readonly SetupIp[], isWarmed: boolean): string {
  const warmed = isWarmed ? '\n        warmed: true' : ''
  const entries = ips.map(({ address, source }, index) => {
    const bound = source === null ? '' : `\n        source: ${JSON.stringify(source)}`
    return `      - address: ${JSON.stringify(address)}${bound}
        hostname: ${JSON.stringify(egressName(hostname, index))}${warmed}
`
  })
  return `# yaml-language-server: $schema=/usr/share/sternpost/schema/pools.json
#
# Written by \`sternpost setup\`; yours from now on. Every key: /usr/share/sternpost/config/pools.yaml
# \`hostname\` is the EHLO name: it must lead to the address, and be its reverse name.
version: 1
default_pool: default
pools:
  default:
    ips:
${entries.join('')}`
}
