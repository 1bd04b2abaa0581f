/** The suppression list: search, why and since when, adding, removing, import and export. */
import type { ImportedSuppressionsJson, SuppressionJson } from '../../api/suppression.ts'
import { act, askPage } from '../parts/api.ts'
import { useList, type LoadedList } from '../parts/data.ts'
import { number, Time } from '../parts/format.ts'
import { html, type VNode } from '../parts/html.ts'
import { useForm } from '../parts/once.ts'
import { go, Link, place } from '../parts/place.ts'
import { run, runLater, runLong, type Progress } from '../parts/said.ts'
import { Page, ShownList, Table } from '../parts/ui.ts'
import { mayAct } from '../parts/who.ts'

export default function Suppressions(): VNode {
  const email = place.value.query.get('q') ?? ''
  const found = useList<SuppressionJson>('/suppressions', { email })
  const search = (event: SubmitEvent): void => {
    event.preventDefault()
    const wanted = String(new FormData(event.target as HTMLFormElement).get('q')).trim()
    go(wanted === '' ? 'suppressions' : `suppressions?q=${encodeURIComponent(wanted)}`)
  }
  return html`<${Page} title="Suppressions" command="sternpost suppression list" acts=${html`<${Export} />`}>
    <form role="search" class="inline" onSubmit=${search}>
      <label>Address <input name="q" data-query defaultValue=${email} key=${email} autocomplete="off" /></label>
      <button class="main">Find</button>
    </form>
    ${mayAct('suppressions') && html`<${Add} again=${found.again} /> <${Import} again=${found.again} />`}
    <${ShownList}
      of=${found}
      empty=${email === '' ? 'The list is empty: mail goes to every address.' : html`<p>${email} is not on the list.</p>`}
      show=${(entries: SuppressionJson[]) => html`<${Table} caption="Suppressed addresses" columns=${columnsWith(found)} rows=${entries} keyOf=${({ id }: SuppressionJson) => id} />`}
    />
  <//>`
}

const reasonOf = ({ reason }: SuppressionJson): string => reason.replace('_', ' ')

const mailOf = ({ scope, domain }: SuppressionJson): string =>
  `${scope === 'all' ? 'all lists' : scope}${domain === null ? '' : `, ${domain}`}`

function columnsWith({ again }: LoadedList<SuppressionJson>) {
  return [
    { head: 'Address', cell: ({ email }: SuppressionJson) => email },
    { head: 'Why', cell: reasonOf },
    { head: 'Mail of', cell: mailOf },
    { head: 'Since', cell: (each: SuppressionJson) => html`<${Time} at=${each.created_at} />` },
    {
      head: 'Message',
      cell: ({ message_id: id }: SuppressionJson) => id !== null && html`<${Link} to=${`messages/${id}`}>show<//>`,
    },
    {
      head: 'Acts',
      cell: ({ email, scope }: SuppressionJson) => {
        const remove = (): Promise<void> =>
          run(async () => {
            // Beside this row those of other sending domains, and a complaint.
            const { data } = await askPage<SuppressionJson>('/suppressions', { email, scope, limit: 100 })
            if (data.length === 0) {
              again()
              return `${email} is not on the list any more.`
            }
            const entries = data.length === 1 ? '1 entry' : `${number(data.length)} entries`
            const all = data.map((each) => `${mailOf(each)} (${reasonOf(each)})`).join('; ')
            runLater(`${entries} of ${email} will be removed: ${all}.`, async () => {
              await act('DELETE', `/suppressions/${encodeURIComponent(email)}?scope=${encodeURIComponent(scope)}`)
              again()
              return `${email} was taken off the list.`
            })
            return `${entries} of it.`
          })
        return mayAct('suppressions') && html`<button onClick=${remove}>Remove</button>`
      },
    },
  ]
}

function Add({ again }: { again: () => void }): VNode {
  const add = useForm(async (fields, once) => {
    const email = String(fields.get('email')).trim()
    await act('POST', '/suppressions', { email }, once)
    again()
    return `${email} is on the list.`
  })
  return html`<form class="inline" onSubmit=${add}>
    <label>Suppress <input name="email" inputmode="email" required autocomplete="off" /></label>
    <button>Add</button>
  </form>`
}

const LINES_AT_ONCE = 20_000

/** In parts, so that the progress can be seen. */
function Import({ again }: { again: () => void }): VNode {
  const load = async (file: File, tell: (progress: Progress) => void): Promise<string> => {
    const [head = '', ...lines] = (await file.text()).split(/\r\n|\n|\r/)
    const sum = { added: 0, existing: 0, rejected: 0 }
    const errors: string[] = []
    // Also a file of one line, of which the server says what it lacks.
    for (let done = 0; done === 0 || done < lines.length; done += LINES_AT_ONCE) {
      tell({ done, of: lines.length })
      const part = [head, ...lines.slice(done, done + LINES_AT_ONCE)].join('\n')
      const answer = await act<ImportedSuppressionsJson>('POST', '/suppressions/import', part)
      for (const name of ['added', 'existing', 'rejected'] as const) sum[name] += answer[name]
      errors.push(
        ...answer.errors.map((error) => error.replace(/^line (\d+)/, (_, line) => `line ${Number(line) + done}`)),
      )
    }
    again()
    const first = errors[0] === undefined ? '' : ` The first: ${errors[0]}`
    return `${number(sum.added)} added, ${number(sum.existing)} were there, ${number(sum.rejected)} refused.${first}`
  }
  const choose = (event: Event): void => {
    const input = event.target as HTMLInputElement
    const file = input.files?.[0]
    // So that the same one can be chosen again.
    input.value = ''
    if (file !== undefined) void runLong(`${file.name} is imported`, (tell) => load(file, tell))
  }
  return html`<p>
    <label>Import a CSV file with the column <code>email</code> <input type="file" accept=".csv,text/csv" onChange=${choose} /></label>
  </p>`
}

function Export(): VNode {
  const save = (): Promise<void> =>
    runLong('The list is exported', async (tell) => {
      // What an import takes.
      const lines = ['email,reason,scope,domain']
      let after: string | null = null
      do {
        const page: Awaited<ReturnType<typeof askPage<SuppressionJson>>> = await askPage('/suppressions', {
          limit: 100,
          after,
        })
        for (const { email, reason, scope, domain } of page.data)
          lines.push([email, reason, scope, domain ?? ''].map(field).join(','))
        after = page.next_cursor
        tell({ done: lines.length - 1, of: null })
      } while (after !== null)
      const link = document.createElement('a')
      link.href = URL.createObjectURL(new Blob([`${lines.join('\n')}\n`], { type: 'text/csv' }))
      link.download = 'suppressions.csv'
      link.click()
      return `${number(lines.length - 1)} addresses were saved.`
    })
  return html`<button onClick=${save}>Export</button>`
}

/** Of CSV; a program for tables must not take it for a formula, and an import takes the one sign before it away. */
function field(text: string): string {
  const harmless = /^'*[=+\-@]/.test(text) ? `'${text}` : text
  return /[",\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless
}
