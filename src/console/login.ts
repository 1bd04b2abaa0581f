/** The page to log in: the way by passkey, where the browser can. */
import { canUsePasskeys } from './parts/passkey-support.ts'

const place = document.getElementById('passkey')
const button = place?.querySelector('button')

async function post(path: string, body: object): Promise<{ data: PublicKeyCredentialRequestOptionsJSON }> {
  const response = await fetch(`/console/login/passkey${path}`, { method: 'POST', body: JSON.stringify(body) })
  if (!response.ok) throw new Error(`${response.status}`)
  return (await response.json()) as { data: PublicKeyCredentialRequestOptionsJSON }
}

async function logIn(): Promise<void> {
  const { data } = await post('/options', {})
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(data)
  const credential = (await navigator.credentials.get({ publicKey })) as PublicKeyCredential
  await post('', credential.toJSON() as object)
  location.assign('/console/')
}

function tell(text: string): void {
  const line = document.createElement('p')
  line.className = 'problem'
  line.setAttribute('role', 'alert')
  line.textContent = text
  place?.after(line)
}

if (place !== null && canUsePasskeys) {
  place.hidden = false
  button?.addEventListener('click', () => {
    logIn().catch(() => tell('This did not log in: no passkey of this server was given, or it was removed.'))
  })
}
