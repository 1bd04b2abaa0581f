/** What was done, said at the lower edge and to screen readers; and acts that wait ten seconds, to be undone. */
import { signal } from '@preact/signals'
import { problemText } from './api.ts'
import { html, type VNode } from './html.ts'

interface Said {
  id: number
  text: string
  isProblem: boolean
  /** null: it is done already. */
  undo: (() => void) | null
}

const SHOWN_MILLISECONDS = 6_000
/** An act can be taken back for so long: it begins only then. */
const UNDO_MILLISECONDS = 10_000

const said = signal<readonly Said[]>([])
let lastId = 0

export function say(text: string, { isProblem = false } = {}): void {
  const id = add({ text, isProblem, undo: null })
  setTimeout(() => remove(id), isProblem ? 2 * SHOWN_MILLISECONDS : SHOWN_MILLISECONDS)
}

/** Runs it, and says how it went. */
export async function run(act: () => Promise<string>): Promise<void> {
  try {
    say(await act())
  } catch (thrown) {
    say(problemText(thrown), { isProblem: true })
  }
}

/** `text`: what will be done. It is done after ten seconds, also when the screen is left, unless somebody undoes it. */
export function runLater(text: string, act: () => Promise<string>): void {
  const leave = (event: BeforeUnloadEvent): void => event.preventDefault()
  const end = (): void => {
    clearTimeout(timer)
    removeEventListener('beforeunload', leave)
    remove(id)
  }
  const id = add({
    text,
    isProblem: false,
    undo() {
      end()
      say('Nothing was changed.')
    },
  })
  const timer = setTimeout(() => {
    end()
    void run(act)
  }, UNDO_MILLISECONDS)
  addEventListener('beforeunload', leave)
}

function add(entry: Omit<Said, 'id'>): number {
  lastId += 1
  said.value = [...said.value, { id: lastId, ...entry }].slice(-5)
  return lastId
}

function remove(id: number): void {
  said.value = said.value.filter((entry) => entry.id !== id)
}

export function SaidList(): VNode {
  return html`<div class="said" role="status" aria-live="polite">
    ${said.value.map(
      ({ id, text, isProblem, undo }) =>
        html`<div key=${id} class=${isProblem ? 'problem' : ''}>
          <span>${text}</span>
          ${undo !== null && html`<button onClick=${undo}>Undo</button>`}
          ${undo === null && html`<button class="plain" aria-label="Close" onClick=${() => remove(id)}>×</button>`}
        </div>`,
    )}
  </div>`
}
