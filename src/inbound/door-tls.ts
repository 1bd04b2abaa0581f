/**
 * TLS of an SMTP door: certificates by the name the client asks for, which can be changed while it is open, and the
 * commands that follow from them: STARTTLS is offered where there is a certificate.
 *
 * Throws ProcessExit 78 for a certificate that cannot be used, and for a listener that needs one and has none.
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

export interface DoorTls {
  /** For smtp-server: at its making, and again after a change. */
  optionsFor(
    kind: ListenerTls,
  ): Pick<TlsOptions, 'cert' | 'key' | 'minVersion' | 'SNICallback'> & { disabledCommands: string[] }
  /** Throws when a listener of this kind could not do its work. */
  require(kind: ListenerTls): void
  /** For handshakes from now on; null: there is none. */
  change(certificates: ServerCertificates | null): void
}

interface DoorTlsOptions {
  /** Where the listeners stand in the configuration, for errors. */
  setting: string
  settings: TlsSettings
  /** Keys come in here: without TLS nobody may log in. */
  hasLogin: boolean
}

/** Toys of the library, and what is between a proxy and its server. */
const NEVER_OFFERED = ['WIZ', 'SHELL', 'KILL', 'XCLIENT', 'XFORWARD']

export function createDoorTls({ setting, settings, hasLogin }: DoorTlsOptions): DoorTls {
  let certificates =
    settings.certificates.length === 0 ? null : readServerCertificates(settings.certificates, settings.min_version)
  return {
    optionsFor: (kind) => ({
      ...certificates?.default,
      minVersion: certificates?.minVersion ?? settings.min_version,
      SNICallback: (name, done) => done(null, certificates?.contextFor(name)),
      disabledCommands: [
        ...NEVER_OFFERED,
        ...(hasLogin ? [] : ['AUTH']),
        ...(kind === 'starttls' && certificates !== null ? [] : ['STARTTLS']),
      ],
    }),
    require(kind) {
      const isNeeded = kind === 'implicit' || (kind === 'starttls' && hasLogin)
      if (!isNeeded || certificates !== null) return
      const problem = 'a TLS listener needs a certificate: name one in tls.certificates'
      throw new ProcessExit(EXIT.configuration, `${setting}: ${problem}`)
    },
    change(changed) {
      certificates = changed
    },
  }
}
