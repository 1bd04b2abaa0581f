/** Passkeys of whoever is logged in: those that are there, a new one, and away with one. */
import type { PasskeyJson } from '../../api/people.ts'
import { act, ask } from './api.ts'
import { Time } from './format.ts'
import { html, useState, type VNode } from './html.ts'
import { canUsePasskeys } from './passkey-support.ts'
import { run } from './said.ts'
import { Dialog } from './ui.ts'

const PATH = '/console/passkeys'

export function Passkeys(): VNode {
  const [found, setFound] = useState<readonly PasskeyJson[] | null>(null)
  const open = (): Promise<void> =>
    run(async () => {
      setFound(await ask<PasskeyJson[]>(PATH))
      return 'These are your passkeys.'
    })
  const add = (): Promise<void> =>
    run(async () => {
      const options = await act<PublicKeyCredentialCreationOptionsJSON>('POST', `${PATH}/options`, {})
      const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options)
      const made = (await navigator.credentials.create({ publicKey })) as PublicKeyCredential
      setFound(await act<PasskeyJson[]>('POST', PATH, made.toJSON() as object))
      return 'From now on this passkey logs you in.'
    })
  const remove = (id: string): Promise<void> =>
    run(async () => {
      setFound(await act<PasskeyJson[]>('POST', `${PATH}/remove`, { id }))
      return 'The passkey logs in no more.'
    })
  return html`<button class="plain" onClick=${open}>Passkeys</button>
    ${
      found !== null &&
      html`<${Dialog} title="Your passkeys" onClose=${() => setFound(null)}>
      ${found.length === 0 && html`<p>None yet. A passkey logs you in without a link from the server.</p>`}
      <ul>
        ${found.map(({ id, label, created_at: at }) => html`<li key=${id}>${label}, <${Time} at=${at} /> <button onClick=${() => remove(id)}>Remove</button></li>`)}
      </ul>
      ${canUsePasskeys ? html`<p><button class="main" onClick=${add}>Add a passkey</button></p>` : html`<p class="hint">A passkey needs a host name with TLS, or localhost.</p>`}
      <form method="dialog"><button>Close</button></form>
    <//>`
    }`
}
