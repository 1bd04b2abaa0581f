/** A mail as it is shown: its html in a frame that can do nothing, its header fields. */
import { html, useState, type VNode } from './html.ts'
import { Table } from './ui.ts'

const WIDTHS = { Phone: 'w360', Mail: 'w600', Full: 'wfull' }
/** In a frame without scripts, forms or origin; images from elsewhere only when they are asked for. */
export function Preview({ url }: { url: string }): VNode {
  const [width, setWidth] = useState<keyof typeof WIDTHS>('Full')
  const [isDark, setIsDark] = useState(false)
  const [hasImages, setHasImages] = useState(false)
  return html`<div class="choice" role="group" aria-label="How it is shown">
      ${Object.keys(WIDTHS).map((each) => html`<button key=${each} class="plain" aria-pressed=${each === width} onClick=${() => setWidth(each as keyof typeof WIDTHS)}>${each}</button>`)}
      <button class="plain" aria-pressed=${isDark} onClick=${() => setIsDark(!isDark)}>Dark</button>
      <button class="plain" aria-pressed=${hasImages} onClick=${() => setHasImages(!hasImages)}>Images from elsewhere</button>
    </div>
    <iframe class=${`preview ${WIDTHS[width]} ${isDark ? 'dark' : ''}`} title="The mail as html" sandbox="" src=${`${url}${hasImages ? '?images=remote' : ''}`}></iframe>`
}

interface Field {
  name: string
  value: string
}

const FIELD_COLUMNS = [
  { head: 'Name', cell: ({ name }: Field) => name },
  { head: 'Value', cell: ({ value }: Field) => value },
]

export function Headers({ of }: { of: Field[] }): VNode {
  return html`<${Table} caption="Headers" columns=${FIELD_COLUMNS} rows=${of} keyOf=${({ name, value }: Field) => name + value} />`
}
