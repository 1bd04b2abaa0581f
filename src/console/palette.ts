/** Ctrl-K: finds screens, messages, domains and IPs, and shows the command that does the same. */
import { askPage } from './parts/api.ts'
import { shellWord } from './parts/format.ts'
import { html, useEffect, useState, type VNode } from './parts/html.ts'
import { palette } from './parts/opened.ts'
import { go } from './parts/place.ts'
import { Dialog } from './parts/ui.ts'
import { maySee, who } from './parts/who.ts'
import { shownScreens } from './screens.ts'
import { namedMessage } from './screens/message-query.ts'

interface Found {
  text: string
  to: string
  command: string
}

const MOST_SHOWN = 12

export function Palette(): VNode {
  const [text, setText] = useState('')
  const [names, setNames] = useState<readonly Found[]>([])
  const close = (): void => {
    palette.value = null
  }
  useEffect(() => {
    void loadNames().then(setNames)
  }, [])
  const found = [...direct(text), ...[...screens(), ...names].filter((each) => holds(each, text))].slice(0, MOST_SHOWN)
  const open = (to: string): void => {
    close()
    go(to)
  }
  const openFirst = (event: Event): void => {
    event.preventDefault()
    if (found[0] !== undefined) open(found[0].to)
  }
  return html`<${Dialog} title="Find" onClose=${close}>
    <form onSubmit=${openFirst}>
      <label for="find">Screen, address, message id, domain or IP</label>
      <input id="find" autofocus autocomplete="off" value=${text} onInput=${(event: InputEvent) => setText((event.target as HTMLInputElement).value)} />
    </form>
    <ul class="found">
      ${found.map(
        ({ text: shown, to, command }) =>
          html`<li key=${to + shown}>
            <button class="plain" onClick=${() => open(to)}>${shown}</button> <code class="quiet">${command}</code>
          </li>`,
      )}
    </ul>
  <//>`
}

const holds = ({ text }: Found, wanted: string): boolean => text.toLowerCase().includes(wanted.trim().toLowerCase())

/** What the text itself names. */
function direct(text: string): Found[] {
  const wanted = text.trim()
  if (!maySee('messages:read')) return []
  const message = namedMessage(wanted)
  if (message !== undefined) {
    return [{ text: wanted, to: `messages/${message}`, command: `sternpost message show ${shellWord(message)}` }]
  }
  if (!wanted.includes('@')) return []
  const to = `messages?q=${encodeURIComponent(wanted)}`
  return [{ text: `Messages to ${wanted}`, to, command: `sternpost message list --recipient ${shellWord(wanted)}` }]
}

function screens(): Found[] {
  return who.value === null
    ? []
    : shownScreens(who.value).map(({ title, path }) => ({ text: title, to: path, command: '' }))
}

async function loadNames(): Promise<Found[]> {
  const domains = maySee('domains') ? askPage<{ domain: string }>('/domains', { status: 'all', limit: 100 }) : null
  const ips = maySee('stats') ? askPage<{ ip: string }>('/ips', { limit: 100 }) : null
  const named = (await domains?.catch(() => null))?.data ?? []
  const listed = (await ips?.catch(() => null))?.data ?? []
  return [
    ...named.map(({ domain }) => ({
      text: domain,
      to: `domains/${domain}`,
      command: `sternpost domain show ${domain}`,
    })),
    ...listed.map(({ ip }) => ({ text: ip, to: `ips/${encodeURIComponent(ip)}`, command: `sternpost ip show ${ip}` })),
  ]
}
