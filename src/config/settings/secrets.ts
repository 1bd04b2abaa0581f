/**
 * Reads the secrets that `sternpost.yaml` names: from a file, or from a credential that systemd hands over.
 *
 * A secret file that others can read is refused. The sentence of a refusal names the file and never its content.
 */
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { readRegularFile } from '../../base/regular-file.ts'
import { errorCode, errorText } from '../../base/errors.ts'
import { MASTER_KEY_BYTES } from '../../base/key-ring.ts'
import { accepted, refused, type Reading } from './field-types.ts'
import type { SecretReference } from './network-field-types.ts'

/** Read, write and execute for others; the group may read (config/README.md "Rules of the files"). */
export const OTHERS_MASK = 0o007
const MOST_SECRET_BYTES = 64 * 2 ** 10

/** The text of a secret without the white space around it. */
export function readSecret(reference: SecretReference, credentialsFolder: string | undefined): Reading<string> {
  const file = fileOf(reference, credentialsFolder)
  if (file === undefined) {
    return refused('a credential is only there in the service: systemd hands it over in $CREDENTIALS_DIRECTORY')
  }
  try {
    const { mode, size } = statSync(file)
    if ((mode & OTHERS_MASK) !== 0) return refused(`others can use ${file}; run chmod o= ${file}`, `chmod o= ${file}`)
    if (size > MOST_SECRET_BYTES) return refused(`${file} is too large for a secret`)
    const text = readRegularFile(file).toString('utf8').trim()
    return text === '' ? refused(`${file} is empty`) : accepted(text)
  } catch (thrown) {
    if (errorCode(thrown) === 'ENOENT') return refused(`there is no file ${file}`)
    return refused(`cannot read ${file}: ${errorText(thrown)}`)
  }
}

/** The master key: 32 bytes, base64. */
export function readMasterKey(reference: SecretReference, credentialsFolder: string | undefined): Reading<Buffer> {
  const reading = readSecret(reference, credentialsFolder)
  if (!reading.ok) return reading
  const key = Buffer.from(reading.value, 'base64')
  // Base64 of 32 bytes: 43 characters and one for padding.
  const isBase64 = /^[A-Za-z0-9+/]{43}=?$/.test(reading.value)
  if (isBase64 && key.length === MASTER_KEY_BYTES) return accepted(key)
  return refused(`the master key must be ${MASTER_KEY_BYTES} bytes in base64; make one with: openssl rand -base64 32`)
}

function fileOf(reference: SecretReference, credentialsFolder: string | undefined): string | undefined {
  if ('file' in reference) return reference.file
  return credentialsFolder === undefined ? undefined : join(credentialsFolder, reference.credential)
}
