/**
 * The keyboard: `/` to the query, `g` and a letter to a screen, `j` and `k` through rows, Enter opens, `?` shows this,
 * Ctrl-K finds. Nothing happens while somebody writes into a field.
 */
import { html, type VNode } from './parts/html.ts'
import { helpIsOpen, palette } from './parts/opened.ts'
import { go } from './parts/place.ts'
import { Dialog } from './parts/ui.ts'
import { who } from './parts/who.ts'
import { shownScreens } from './screens.ts'

const GO_MILLISECONDS = 1_500
let wentAt = -Infinity

export function listenToKeys(): void {
  addEventListener('keydown', (event) => {
    if (event.key === 'k' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault()
      void openPalette()
      return
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target)) return
    if (press(event.key)) event.preventDefault()
  })
}

async function openPalette(): Promise<void> {
  palette.value = (await import('./palette.ts')).Palette
}

function isWriting(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest('input, textarea, select, dialog') !== null
}

/** True when the key meant something. */
function press(key: string): boolean {
  const isGoing = performance.now() - wentAt < GO_MILLISECONDS
  wentAt = key === 'g' ? performance.now() : -Infinity
  if (isGoing) {
    const screen = who.value === null ? undefined : shownScreens(who.value).find((each) => each.key === key)
    if (screen !== undefined) go(screen.path)
    return screen !== undefined
  }
  if (key === '?') helpIsOpen.value = true
  else if (key === '/') document.querySelector<HTMLElement>('[data-query]')?.focus()
  else if (key === 'j' || key === 'k') moveRow(key === 'j' ? 1 : -1)
  else return false
  return true
}

/** To the first link of the next row, or of the one before. */
function moveRow(step: number): void {
  const links = [...document.querySelectorAll<HTMLElement>('main tbody tr')].flatMap(
    (row) => row.querySelector<HTMLElement>('a, button') ?? [],
  )
  const at = links.findIndex((link) => link.closest('tr')?.contains(document.activeElement) === true)
  links[Math.min(Math.max(at + step, 0), links.length - 1)]?.focus()
}

export function KeyHelp(): VNode {
  const screens = who.value === null ? [] : shownScreens(who.value)
  const keys: [string, string][] = [
    ['/', 'to the query'],
    ['j, k', 'next row, row before'],
    ['Enter', 'open'],
    ['Ctrl-K', 'find a screen, a message, a domain, an IP, an act'],
    ['?', 'these keys'],
    ...screens.map(({ key, title }): [string, string] => [`g ${key}`, title]),
  ]
  return html`<${Dialog} title="Keys" onClose=${() => (helpIsOpen.value = false)}>
    <dl class="facts">
      ${keys.map(([key, what]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}
    </dl>
    <form method="dialog"><button>Close</button></form>
  <//>`
}
