/** What `sternpost sandbox` prints once all listeners answer (sandbox/README.md "The banner"). Pure. */
import { SIMULATOR_DOMAIN } from '../mail/simulator.ts'
import { HOOKS_PATH } from './hook-secrets.ts'
import { SANDBOX_ADDRESS } from './sandbox-settings.ts'
import { INSPECTOR_NAME, SANDBOX_DOMAIN } from './sandbox.ts'

interface SandboxFacts {
  version: string
  baseUrl: string
  /** Whole. */
  key: string
  /** Logs in once. */
  consoleUrl: string
  /** Of SMTP submission. */
  submissionPort: number
  /** As the user would write it. */
  dataFolder: string
}

/** For a terminal. */
export function bannerText({ version, baseUrl, key, consoleUrl, submissionPort, dataFolder }: SandboxFacts): string {
  const curl = curlLines(baseUrl, key).join(' \\\n      ')
  return `Sternpost ${version} sandbox · nothing leaves this machine · data in ${dataFolder} (use --fresh to start over)

  Console   ${consoleUrl}

  API       ${baseUrl}/v1          key  ${key}   (also in ${dataFolder}/key)
  SMTP      ${SANDBOX_ADDRESS}:${submissionPort}                    user apikey, password = the key

  Try it:
    ${curl}

  Then watch:  curl -s '${inspectorUrl(baseUrl)}?wait=10s'      Stop: Ctrl-C
`
}

/** The same facts as one JSON line, for scripts. */
export function bannerLine({ version, baseUrl, key, consoleUrl, submissionPort, dataFolder }: SandboxFacts): string {
  return `${JSON.stringify({
    msg: 'sandbox ready',
    version,
    console: consoleUrl,
    base_url: `${baseUrl}/v1`,
    key,
    inbox: `${baseUrl}/dev/inbox`,
    inspector: inspectorUrl(baseUrl),
    smtp: `${SANDBOX_ADDRESS}:${submissionPort}`,
    data: dataFolder,
    curl: curlLines(baseUrl, key).join(' '),
  })}\n`
}

function inspectorUrl(baseUrl: string): string {
  return `${baseUrl}${HOOKS_PATH}${INSPECTOR_NAME}`
}

function curlLines(baseUrl: string, key: string): string[] {
  const message = {
    to: `clicked@${SIMULATOR_DOMAIN}`,
    from: `you@${SANDBOX_DOMAIN}`,
    subject: 'Hello',
    html: '<p>Hi, <a href="https://example.com/">look</a></p>',
  }
  return [
    `curl -s ${baseUrl}/v1/email/send`,
    `-H 'Authorization: Bearer ${key}' -H 'Content-Type: application/json'`,
    `-d '${JSON.stringify(message)}'`,
  ]
}
