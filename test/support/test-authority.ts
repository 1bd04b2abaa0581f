/**
 * A certificate authority for tests, made by the `openssl` command: issues certificates for names, also expired ones
 * and authorities below itself. Everything is in a folder that `close` removes.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface IssuedCertificate {
  /** PEM. */
  key: string
  /** PEM: the certificate, then the authorities between it and the root. */
  chain: string
  /** PEM: the certificate alone. */
  certificate: string
}

export interface TestAuthority {
  /** PEM. */
  certificate: string
  /** A file with the same. */
  file: string
  issue(names: readonly string[], options?: IssueOptions): IssuedCertificate
  /** One that issues on; its chain is added to what it issues. */
  intermediate(name: string): TestAuthority
  close(): void
}

export interface IssueOptions {
  isExpired?: boolean
  /** Adds the root too, as hosts with TLSA records of usage 2 must (RFC 7671 §5.2.2). */
  withRoot?: boolean
  /** Extended key usage, such as `clientAuth`; left out: none is said. */
  usage?: string
}

const NEW_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']

export function createTestAuthority(name = 'Test Root'): TestAuthority {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-authority-'))
  openssl(folder, [
    'req',
    '-x509',
    ...NEW_KEY,
    '-keyout',
    'root.key',
    '-out',
    'root.pem',
    '-days',
    '30',
    '-subj',
    `/CN=${name}`,
    '-addext',
    'basicConstraints=critical,CA:TRUE',
  ])
  const close = (): void => rmSync(folder, { recursive: true, force: true })
  return authority({ folder, file: 'root', above: '', root: read(folder, 'root.pem'), close })
}

interface Made {
  folder: string
  /** Of key and certificate, without ending. */
  file: string
  /** PEM of the authorities between this one and the root, this one first; '' for the root. */
  above: string
  root: string
  close: () => void
}

function authority(made: Made): TestAuthority {
  const { folder, file, above, root, close } = made
  let issued = 0
  const sign = (subject: string, extensions: readonly string[], days: number): { key: string; certificate: string } => {
    const own = `${file}-${++issued}`
    const added = extensions.flatMap((extension) => ['-addext', extension])
    const request = ['-keyout', `${own}.key`, '-out', `${own}.csr`, '-subj', subject, ...added]
    openssl(folder, ['req', '-new', ...NEW_KEY, ...request])
    openssl(folder, [
      'x509',
      '-req',
      '-in',
      `${own}.csr`,
      '-CA',
      `${file}.pem`,
      '-CAkey',
      `${file}.key`,
      '-CAcreateserial',
      '-copy_extensions',
      'copy',
      '-days',
      String(days),
      '-out',
      `${own}.pem`,
    ])
    return { key: read(folder, `${own}.key`), certificate: read(folder, `${own}.pem`) }
  }
  return {
    certificate: read(folder, `${file}.pem`),
    file: join(folder, `${file}.pem`),
    issue(names, { isExpired = false, withRoot = false, usage } = {}) {
      const alternatives = `subjectAltName=${names.map((each) => `DNS:${each}`).join(',')}`
      const extensions = [alternatives, ...(usage === undefined ? [] : [`extendedKeyUsage=${usage}`])]
      const { key, certificate } = sign(`/CN=${names[0]}`, extensions, isExpired ? -1 : 30)
      return { key, certificate, chain: `${certificate}${above}${withRoot ? root : ''}` }
    },
    intermediate(name) {
      const { certificate } = sign(`/CN=${name}`, ['basicConstraints=critical,CA:TRUE'], 30)
      return authority({ folder, file: `${file}-${issued}`, above: `${certificate}${above}`, root, close })
    },
    close,
  }
}

function openssl(folder: string, words: readonly string[]): void {
  execFileSync('openssl', words, { cwd: folder, stdio: 'ignore' })
}

function read(folder: string, file: string): string {
  return readFileSync(join(folder, file), 'utf8')
}
