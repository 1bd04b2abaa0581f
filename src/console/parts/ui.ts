/** The pieces of which screens are made: a page, tables, states, empty places, dialogs, things to copy. */
import type { Loaded, LoadedList } from './data.ts'
import { html, useEffect, useRef, type VNode, type WithChildren } from './html.ts'
import { isFurtherPlace } from './place.ts'
import { say } from './said.ts'

interface PageProps extends WithChildren {
  title: string
  /** The command that shows the same. */
  command?: string
  /** Beside the title. */
  acts?: unknown
}

export function Page({ title, command, acts, children }: PageProps): VNode {
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = `${title} · Sternpost`
  }, [title])
  // Else the focus is gone with the screen before, and Tab begins at the top again.
  useEffect(() => {
    if (isFurtherPlace()) heading.current?.focus({ preventScroll: true })
  }, [])
  return html`<header class="page">
      <h1 tabindex="-1" ref=${heading}>${title}</h1>
      <div class="acts">${acts}</div>
      ${command !== undefined && html`<p class="command quiet">On the server: <${Copy} text=${command} /></p>`}
    </header>
    ${children}`
}

interface Column<Row> {
  head: string
  cell: (row: Row) => unknown
  /** Figures stand on the right. */
  isNumber?: boolean
}

interface TableProps<Row> {
  caption: string
  columns: readonly Column<Row>[]
  rows: readonly Row[]
  keyOf: (row: Row) => string
}

export function Table<Row>({ caption, columns, rows, keyOf }: TableProps<Row>): VNode {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <caption class="unseen">
        ${caption}
      </caption>
      <thead>
        <tr>
          ${columns.map(({ head, isNumber = false }) => html`<th scope="col" class=${isNumber ? 'number' : ''}>${head}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          (row) =>
            html`<tr key=${keyOf(row)}>
              ${columns.map(({ head, cell, isNumber = false }) => html`<td class=${isNumber ? 'number' : ''} data-head=${head}>${cell(row)}</td>`)}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`
}

/** What is loaded, or a placeholder, or what went wrong with a way to ask again. */
export function Shown<Data>({ of, show }: { of: Loaded<Data>; show: (data: Data) => unknown }): VNode {
  const { data, problem, again } = of
  if (problem !== null) return html`<${Problem} text=${problem} again=${again} />`
  return data === null ? html`<${Waiting} />` : html`${show(data)}`
}

interface ShownListProps<Entry> {
  of: LoadedList<Entry>
  /** Where there is nothing. */
  empty: unknown
  show: (entries: Entry[]) => unknown
}

export function ShownList<Entry>({ of, empty, show }: ShownListProps<Entry>): VNode {
  const { entries, problem, hasMore, more, again } = of
  return html`${problem !== null && html`<${Problem} text=${problem} again=${again} />`}
  ${entries === null && problem === null && html`<${Waiting} />`}
  ${entries !== null && entries.length === 0 && !hasMore && html`<div class="empty">${empty}</div>`}
  ${entries !== null && entries.length > 0 && show(entries)}
  ${hasMore && html`<p><button onClick=${more}>Show more</button></p>`}`
}

function Problem({ text, again }: { text: string; again: () => void }): VNode {
  return html`<p class="problem" role="alert">${text} <button onClick=${again}>Try again</button></p>`
}

export function Waiting(): VNode {
  return html`<p class="waiting" aria-busy="true">Loading …</p>`
}

const GOOD = [
  'delivered',
  'verified',
  'warmed',
  'ok',
  'succeeded',
  'enabled',
  'open',
  'success',
  'valid',
  'pass',
  'living',
]
const BAD = [
  'bounced',
  'failed',
  'fail',
  'suspended',
  'disabled',
  'complained',
  'expired',
  'invalid',
  'problem',
  'dead',
]

/** A state in its own word, with a colour and a sign beside it. */
export function State({ of }: { of: string }): VNode {
  const kind = GOOD.includes(of) ? 'good' : BAD.includes(of) ? 'bad' : 'other'
  const sign = { good: '✓', bad: '✕', other: '·' }[kind]
  return html`<span class=${`state ${kind}`}><span aria-hidden="true">${sign}</span> ${of.replaceAll('_', ' ')}</span>`
}

/** A text with a button that copies it. */
export function Copy({ text, label }: { text: string; label?: string }): VNode {
  const copy = (): void => {
    navigator.clipboard.writeText(text).then(
      () => say('Copied.'),
      () => say('The browser does not let this page copy; mark the text and copy it by hand.', { isProblem: true }),
    )
  }
  return html`<span class="copy"
    ><code>${label ?? text}</code><button class="plain" aria-label=${`Copy ${label ?? text}`} onClick=${copy}>Copy</button></span
  >`
}

/** Names with their values. */
export function Facts({ of }: { of: readonly (readonly [string, unknown])[] }): VNode {
  return html`<dl class="facts">
    ${of.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`
}

interface DialogProps extends WithChildren {
  title: string
  onClose: () => void
}

/** Above everything; Escape closes it, and the focus goes back. */
export function Dialog({ title, onClose, children }: DialogProps): VNode {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    dialog.current?.showModal()
  }, [])
  return html`<dialog ref=${dialog} aria-label=${title} onClose=${onClose}>
    <h2>${title}</h2>
    ${children}
  </dialog>`
}
