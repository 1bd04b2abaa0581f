/**
 * Programs of others that judge what Sternpost sent: opendkim, dkimpy and mailauth for signatures, pyspf and mailauth
 * for SPF. All ask the DNS server on loopback that the test wrote its zones into, and nothing else.
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { promises as dns } from 'node:dns'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { dkimVerify, spf, type DNSResolver } from 'mailauth'
import { PYTHON } from './programs.ts'

/** What one signature of a mail is worth, topmost first. */
export interface SignatureVerdict {
  selector: string
  algorithm: string
  isGood: boolean
}

export const JUDGE_PROGRAMS: Record<string, readonly string[]> = {
  unbound: ['unbound'],
  opendkim: ['opendkim'],
  'python3:dkim': ['python3-dkim'],
  'python3:nacl': ['python3-nacl'],
  'python3:dns.resolver': ['python3-dnspython'],
  'python3:spf': ['python3-spf'],
}

const run = promisify(execFile)
const OPENDKIM = '/usr/sbin/opendkim'

// dkimpy asks its DNS through the function it is given.
const DKIMPY = `
import sys, json, re, dkim, dns.resolver
resolver = dns.resolver.Resolver(configure=False)
resolver.nameservers, resolver.port = ['127.0.0.1'], int(sys.argv[1])
def txt(name, timeout=5):
    try:
        return b''.join(resolver.resolve(name.decode(), 'TXT')[0].strings)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        return None
def verdicts(path):
    message = dkim.DKIM(open(path, 'rb').read())
    fields = [value for name, value in message.headers if name.lower() == b'dkim-signature']
    for index, field in enumerate(fields):
        tags = dict(re.findall(r'(?:^|;)\\s*(\\w+)=([^;]*)', field.decode()))
        try:
            good = message.verify(idx=index, dnsfunc=txt)
        except dkim.DKIMException:
            good = False
        yield {'selector': tags['s'].strip(), 'algorithm': tags['a'].strip(), 'isGood': good}
print(json.dumps([list(verdicts(path)) for path in sys.argv[2:]]))
`

const PYSPF = `
import sys, json, spf, dns.resolver
resolver = dns.resolver.Resolver(configure=False)
resolver.nameservers, resolver.port = ['127.0.0.1'], int(sys.argv[1])
def value(kind, record):
    if kind == 'TXT': return list(record.strings)
    if kind == 'MX': return (record.preference, record.exchange.to_text(omit_final_dot=True))
    return record.target.to_text(omit_final_dot=True) if kind == 'CNAME' else record.address
def look(name, kind, tcpfallback=True, timeout=5):
    try:
        answer = resolver.resolve(name, kind, search=False).response.answer
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        return []
    pairs = [(rrset, record) for rrset in answer for record in rrset]
    kinds = [(rrset.name.to_text(omit_final_dot=True), dns.rdatatype.to_text(record.rdtype)) for rrset, record in pairs]
    return [(key, value(key[1], record)) for key, (rrset, record) in zip(kinds, pairs)]
spf.DNSLookup = look
print(json.dumps([spf.check2(i=ip, s=sys.argv[2], h='mail.sternpost.test')[0] for ip in sys.argv[3:]]))
`

/** `opendkim -t`: its milter callbacks, run on files. */
export async function judgeWithOpendkim(mails: readonly Buffer[], dnsPort: number): Promise<SignatureVerdict[][]> {
  return withFiles(mails, async (folder, paths) => {
    const resolver = join(folder, 'resolver.conf')
    const settings = join(folder, 'opendkim.conf')
    // libunbound holds `test.` for its own otherwise (RFC 6761 §6.2).
    writeFileSync(
      resolver,
      `server:
  do-not-query-localhost: no
  module-config: "iterator"
  use-syslog: no
  logfile: ""
  local-zone: "test." nodefault
forward-zone:
  name: "."
  forward-addr: 127.0.0.1@${dnsPort}
`,
    )
    writeFileSync(settings, `Mode v\nBackground no\nSyslog no\nResolverConfiguration ${resolver}\n`)
    const { stdout } = await run(OPENDKIM, ['-x', settings, '-u', 'root', '-vv', '-t', paths.join(',')], {
      maxBuffer: 64 * 2 ** 20,
    })
    // One Authentication-Results per mail, in their order.
    return stdout.split('### INSHEADER').slice(1).map(opendkimVerdicts)
  })
}

function opendkimVerdicts(field: string): SignatureVerdict[] {
  // One result of the field: its verdict, algorithm and selector.
  const results = field.matchAll(/\bdkim=(\w+)\s[^]*?header\.a=(\S+) header\.s=([^\s;]+)/g)
  return [...results].map(([, verdict, algorithm = '', selector = '']) => ({
    selector,
    algorithm,
    isGood: verdict === 'pass',
  }))
}

export async function judgeWithDkimpy(mails: readonly Buffer[], dnsPort: number): Promise<SignatureVerdict[][]> {
  return withFiles(mails, async (_folder, paths) => {
    const { stdout } = await run(PYTHON, ['-c', DKIMPY, String(dnsPort), ...paths])
    return JSON.parse(stdout) as SignatureVerdict[][]
  })
}

export async function judgeWithMailauth(mail: Buffer, dnsPort: number): Promise<SignatureVerdict[]> {
  const { results } = await dkimVerify(mail, { resolver: resolverAt(dnsPort) })
  return results.map((result) => ({
    selector: String(result.selector),
    algorithm: String(result.algo),
    isGood: result.status.result === 'pass',
  }))
}

/** The SPF result of pyspf and of mailauth for each IP, such as `pass`. */
export async function judgeSpf(
  ips: readonly string[],
  sender: string,
  dnsPort: number,
): Promise<{ ip: string; pyspf: string; mailauth: string }[]> {
  const { stdout } = await run(PYTHON, ['-c', PYSPF, String(dnsPort), sender, ...ips])
  const pyspf = JSON.parse(stdout) as string[]
  const resolver = resolverAt(dnsPort)
  return Promise.all(
    ips.map(async (ip, index) => {
      const { status } = await spf({ ip, sender, helo: 'mail.sternpost.test', mta: 'sink.test', resolver })
      return { ip, pyspf: pyspf[index] ?? '', mailauth: status.result }
    }),
  )
}

/** Keeps nothing: every question is asked anew. */
function resolverAt(port: number): DNSResolver {
  const resolver = new dns.Resolver({ timeout: 500, tries: 6 })
  resolver.setServers([`127.0.0.1:${port}`])
  return async (name, type) => (await resolver.resolve(name, type)) as string[][]
}

async function withFiles<Result>(
  mails: readonly Buffer[],
  use: (folder: string, paths: string[]) => Promise<Result>,
): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-judged-'))
  try {
    const paths = mails.map((mail, index) => join(folder, `${index}.eml`))
    mails.forEach((mail, index) => writeFileSync(paths[index] ?? '', mail))
    return await use(folder, paths)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
