/** GnuPG keys in a folder of the test, one for each address. Takes the program `gpg`. */
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'

/** An environment where `gpg` has them; `folder` is made for it. */
export function signingKeys(
  t: { teardown(end: () => unknown): void },
  folder: string,
  addresses: readonly string[],
): NodeJS.ProcessEnv {
  mkdirSync(folder, { mode: 0o700 })
  t.teardown(() => spawnSync('gpgconf', ['--homedir', folder, '--kill', 'all']))
  const environment = { ...process.env, GNUPGHOME: folder }
  for (const address of addresses) {
    const words = ['--batch', '--passphrase', '', '--quick-generate-key', address, 'ed25519', 'sign']
    execFileSync('gpg', words, { env: environment, stdio: 'ignore' })
  }
  return environment
}
