/**
 * TLS of an SMTP door: certificates by the name the client asks for, which can be changed while it is open, and the
 * commands that follow from them: STARTTLS is offered where there is a certificate.
 */
import type { SecureVersion, TlsOptions } from 'node:tls'
import { EXIT, ProcessExit } from '../base/errors.ts'
import {
  readServerCertificates,
  type CertificateFiles,
  type ServerCertificates,
} from '../base/service/server-certificates.ts'

/** starttls: from a command on. implicit: from the first byte. */
export type ListenerTls = 'starttls' | 'implicit' | 'none'

export interface TlsSettings {
  certificates: readonly CertificateFiles[]
  min_version: SecureVersion
}

/** Of the start; left out: those of the settings. */
export type GivenCertificates = ServerCertificates | null | undefined

type DialogueTls = Pick<TlsOptions, 'cert' | 'key' | 'minVersion' | 'SNICallback'> & { disabledCommands: string[] }

/** Toys of the library, and what is between a proxy and its server. */
const NEVER_OFFERED = ['WIZ', 'SHELL', 'KILL', 'XCLIENT', 'XFORWARD']

/**
 * `setting` is where the listeners stand in the configuration, for errors. With `hasLogin` keys come in here: without
 * TLS nobody may log in. Throws ProcessExit 78 for a certificate that cannot be used.
 */
export function createDoorTls(setting: string, settings: TlsSettings, hasLogin: boolean, given: GivenCertificates) {
  let certificates =
    given ??
    (settings.certificates.length === 0 ? null : readServerCertificates(settings.certificates, settings.min_version))
  return {
    /** For smtp-server: at its making, and again after a change. */
    optionsFor: (kind: ListenerTls): DialogueTls => ({
      ...certificates?.default,
      minVersion: certificates?.minVersion ?? settings.min_version,
      SNICallback: (name, done) => done(null, certificates?.contextFor(name)),
      disabledCommands: [
        ...NEVER_OFFERED,
        ...(hasLogin ? [] : ['AUTH']),
        ...(kind === 'starttls' && certificates !== null ? [] : ['STARTTLS']),
      ],
    }),
    /** Throws ProcessExit 78 when a listener of this kind needs a certificate and there is none. */
    require(kind: ListenerTls): void {
      const isNeeded = kind === 'implicit' || (kind === 'starttls' && hasLogin)
      if (!isNeeded || certificates !== null) return
      const problem = 'a TLS listener needs a certificate: name one in tls.certificates'
      throw new ProcessExit(EXIT.configuration, `${setting}: ${problem}`)
    },
    /** For handshakes from now on; null: there is none. */
    change(changed: ServerCertificates | null): void {
      certificates = changed
    },
  }
}
