/**
 * What was done, said at the lower edge and to screen readers; acts that wait ten seconds, to be undone; and long ones
 * with their progress, which go on when the screen is left.
 */
import { signal } from '@preact/signals'
import { problemText } from './api.ts'
import { html, type VNode } from './html.ts'

interface Said {
  id: number
  text: string
  isProblem: boolean
  /** null: it is done already. */
  undo: (() => void) | null
  /** null: nothing goes on. */
  progress: Progress | null
}

/** `of` null: not known. */
export interface Progress {
  done: number
  of: number | null
}

const SHOWN_MILLISECONDS = 6_000
/** An act can be taken back for so long: it begins only then. */
const UNDO_MILLISECONDS = 10_000
/** Shown at once. */
const MOST_DONE = 5

const said = signal<readonly Said[]>([])
let lastId = 0

export function say(text: string, { isProblem = false } = {}): void {
  const id = add({ text, isProblem, undo: null, progress: null })
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

/** A long act: what it does stands there with its progress, on every screen, until it has ended. */
export async function runLong(
  text: string,
  act: (tell: (progress: Progress) => void) => Promise<string>,
): Promise<void> {
  const leave = (event: BeforeUnloadEvent): void => event.preventDefault()
  const id = add({ text, isProblem: false, undo: null, progress: { done: 0, of: null } })
  addEventListener('beforeunload', leave)
  await run(() =>
    act((progress) => {
      said.value = said.value.map((entry) => (entry.id === id ? { ...entry, progress } : entry))
    }),
  )
  removeEventListener('beforeunload', leave)
  remove(id)
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
    progress: null,
    undo() {
      end()
      say('Nothing was changed.')
    },
  })
  const timer = setTimeout(() => {
    end()
    void runLong(text, act)
  }, UNDO_MILLISECONDS)
  addEventListener('beforeunload', leave)
}

function add(entry: Omit<Said, 'id'>): number {
  lastId += 1
  const [open, done] = [said.value.filter(isOpen), said.value.filter((each) => !isOpen(each))]
  said.value = [...open, ...done.slice(1 - MOST_DONE), { id: lastId, ...entry }]
  return lastId
}

/** It may still be undone, or goes on. */
const isOpen = ({ undo, progress }: Said): boolean => undo !== null || progress !== null

function remove(id: number): void {
  said.value = said.value.filter((entry) => entry.id !== id)
}

export function SaidList(): VNode {
  return html`<div class="said" role="status" aria-live="polite">
    ${said.value.map(
      ({ id, text, isProblem, undo, progress }) =>
        html`<div key=${id} class=${isProblem ? 'problem' : ''}>
          <span>${text}</span>
          ${undo !== null && html`<button onClick=${undo}>Undo</button>`}
          ${progress !== null && html`<progress aria-label=${text} max=${progress.of ?? undefined} value=${progress.of === null ? undefined : progress.done}></progress>`}
          ${undo === null && progress === null && html`<button class="plain" aria-label="Close" onClick=${() => remove(id)}>×</button>`}
        </div>`,
    )}
  </div>`
}
