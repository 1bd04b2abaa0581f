/** The server itself, and the nodes that share its database: checks, what a reload would change, backups, storage. */
import type { ChecksJson } from '../../api/health.ts'
import type { NodeJson, NodesJson } from '../../api/node.ts'
import type {
  BackupsJson,
  CertificateJson,
  CertificatesJson,
  ReloadResultJson,
  RunningServerJson,
  StorageJson,
} from '../../api/server.ts'
import { act } from '../parts/api.ts'
import { useData, useEvery } from '../parts/data.ts'
import { number, size, Time } from '../parts/format.ts'
import { html, useState, type VNode } from '../parts/html.ts'
import { run } from '../parts/said.ts'
import { Facts, Page, Shown, State, Table } from '../parts/ui.ts'
import { mayAct } from '../parts/who.ts'

export default function System(): VNode {
  const server = useData<RunningServerJson>('/admin/server')
  return html`<${Page} title="System" command="sternpost doctor">
    <${Shown}
      of=${server}
      show=${({ version, node, started_at: startedAt, revision }: RunningServerJson) =>
        html`<${Facts}
          of=${[
            ['Version', `${version} on Node.js ${node}`],
            ['Running since', html`<${Time} at=${startedAt} />`],
            ['Configuration', `revision ${revision} since the start`],
          ]}
        />`}
    />
    <${Nodes} />
    <${Configuration} again=${server.again} />
    <${Checks} />
    <${Certificates} />
    <${Storage} />
    <${Backups} />
  <//>`
}

const NODE_COLUMNS = [
  { head: 'Node', cell: ({ node_id: id, answers }: NodeJson) => (answers ? `${id} (here)` : id) },
  {
    head: 'State',
    cell: ({ state, draining, ended_by: by }: NodeJson) =>
      html`<${State} of=${draining && state === 'living' ? 'draining' : state} />${state === 'dead' && by !== null && `, declared by ${by}`}`,
  },
  { head: 'Sends from', cell: ({ ips }: NodeJson) => (ips.length === 0 ? 'no IP' : ips.join(', ')) },
  { head: 'Version', cell: ({ version }: NodeJson) => version },
  { head: 'Last beat', cell: ({ seen_at: at }: NodeJson) => html`<${Time} at=${at} />` },
]

/** Who lives and who sends from which IPs; with SQLite there is nothing to tell. */
function Nodes(): VNode {
  const nodes = useData<NodesJson>('/admin/nodes')
  useEvery(10, nodes)
  return html`<section>
    <h2>Nodes</h2>
    <${Shown}
      of=${nodes}
      show=${({ nodes: found, problems }: NodesJson) =>
        found.length === 0
          ? html`<p class="empty">There is one node, with SQLite.</p>`
          : html`<${Table} caption="Nodes" columns=${NODE_COLUMNS} rows=${found} keyOf=${({ node_id: id }: NodeJson) => id} />
              ${problems.map(({ ip, problem }) => html`<p class="problem" key=${ip}>${ip} could not be taken: ${problem}</p>`)}`}
    />
  </section>`
}

/** What a reload would change, and then the reload. */
function Configuration({ again }: { again: () => void }): VNode {
  const [result, setResult] = useState<ReloadResultJson | null>(null)
  const reload = (isDryRun: boolean): Promise<void> =>
    run(async () => {
      const answer = await act<ReloadResultJson>('POST', '/admin/reload', { dry_run: isDryRun })
      setResult(answer)
      again()
      if (answer.mistakes.some(({ severity }) => severity === 'error'))
        throw new Error('The files have mistakes; nothing was changed.')
      return isDryRun ? 'This is what a reload would change.' : 'The configuration was reloaded.'
    })
  return html`<section>
    <h2>Configuration</h2>
    ${mayAct('admin') && html`<p><button onClick=${() => reload(true)}>What would a reload change?</button> <button onClick=${() => reload(false)}>Reload</button></p>`}
    ${
      result !== null &&
      html`${result.lines.length === 0 ? html`<p>Nothing differs.</p>` : html`<pre tabindex="0">${result.lines.join('\n')}</pre>`}
      <ul>
        ${result.mistakes.map(
          ({ file, line, column, path, severity, message, suggestion }) =>
            html`<li key=${`${file} ${line} ${column}`}><${State} of=${severity} /> ${file}:${line}:${column} ${path}: ${message} ${suggestion}</li>`,
        )}
      </ul>`
    }
  </section>`
}

type Check = ChecksJson['checks'][number]

const CHECK_COLUMNS = [
  { head: 'Result', cell: ({ result }: Check) => html`<${State} of=${result} />` },
  { head: 'Check', cell: ({ check, subject }: Check) => `${check}${subject === null ? '' : ` ${subject}`}` },
  { head: 'Seen', cell: ({ seen }: Check) => seen },
  { head: 'Fix', cell: ({ fix }: Check) => fix ?? '' },
]

function Checks(): VNode {
  const checks = useData<ChecksJson>('/admin/checks')
  return html`<section>
    <h2>Checks</h2>
    <${Shown}
      of=${checks}
      show=${({ checks: found }: ChecksJson) => html`<${Table} caption="Checks" columns=${CHECK_COLUMNS} rows=${found} keyOf=${({ check, subject, family }: Check) => `${check} ${subject} ${family}`} />`}
    />
  </section>`
}

const CERTIFICATE_COLUMNS = [
  { head: 'Name', cell: ({ name, names }: CertificateJson) => (names.length === 0 ? name : names.join(', ')) },
  { head: 'Authority', cell: ({ authority, file }: CertificateJson) => file ?? authority },
  { head: 'Ends', cell: ({ ends_at: at }: CertificateJson) => (at === null ? 'none yet' : html`<${Time} at=${at} />`) },
  { head: 'Renews', cell: ({ renews_at: at }: CertificateJson) => (at === null ? '–' : html`<${Time} at=${at} />`) },
  {
    head: 'Problem',
    cell: ({ problem, fix, next_try_at: next }: CertificateJson) =>
      problem === null
        ? ''
        : html`${problem}${fix !== null && `. Fix: ${fix}`}${next !== null && html`. Next try: <${Time} at=${next} />`}`,
  },
]

const RENEW_COLUMN = (again: () => void) => ({
  head: 'Acts',
  cell: ({ name, source }: CertificateJson) =>
    source === 'acme' && html`<button aria-label=${`Renew ${name}`} onClick=${() => renew(name, again)}>Renew</button>`,
})

function renew(name: string, again: () => void): Promise<void> {
  return run(async () => {
    await act('POST', `/admin/certificates/${encodeURIComponent(name)}/renew`, {})
    again()
    return `Another certificate for ${name} is ordered.`
  })
}

function Certificates(): VNode {
  const certificates = useData<CertificatesJson>('/admin/certificates')
  useEvery(30, certificates)
  const columns = [...CERTIFICATE_COLUMNS, ...(mayAct('admin') ? [RENEW_COLUMN(certificates.again)] : [])]
  return html`<section>
    <h2>Certificates</h2>
    <${Shown}
      of=${certificates}
      show=${({ certificates: found }: CertificatesJson) =>
        found.length === 0
          ? html`<p class="empty">No certificate. With tls.acme in sternpost.yaml they come by themselves.</p>`
          : html`<${Table} caption="Certificates" columns=${columns} rows=${found} keyOf=${({ name, file }: CertificateJson) => `${name} ${file}`} />`}
    />
  </section>`
}

type Kind = StorageJson['kinds'][number]

const KIND_COLUMNS = [
  { head: 'What', cell: ({ kind }: Kind) => kind },
  { head: 'Size', cell: ({ bytes }: Kind) => size(bytes), isNumber: true },
]

function Storage(): VNode {
  const storage = useData<StorageJson>('/admin/storage')
  return html`<section>
    <h2>Storage</h2>
    <${Shown}
      of=${storage}
      show=${(found: StorageJson) =>
        html`<${Facts}
            of=${[
              ['Database', `${size(found.file_bytes)}, of which ${size(found.used_bytes)} in use`],
              ['Free on the disk', size(found.free_bytes)],
              ['Growth', found.growth_per_day === null ? 'not known yet' : `${size(found.growth_per_day)} a day`],
              ['Lasts', found.days_left === null ? '–' : `${number(found.days_left)} days`],
            ]}
          />
          <${Table} caption="What the database is full of" columns=${KIND_COLUMNS} rows=${found.kinds} keyOf=${({ kind }: Kind) => kind} />`}
    />
  </section>`
}

type Backup = BackupsJson['backups'][number]

const BACKUP_COLUMNS = [
  { head: 'Made', cell: ({ made_at: at }: Backup) => html`<${Time} at=${at} />` },
  { head: 'Size', cell: ({ bytes }: Backup) => size(bytes), isNumber: true },
  { head: 'Sealed keys', cell: ({ sealed_acme_keys: keys }: Backup) => (keys === null ? '' : `${keys} of ACME`) },
  { head: 'File', cell: ({ path }: Backup) => path },
]

function Backups(): VNode {
  const backups = useData<BackupsJson>('/admin/backups')
  useEvery(backups.data?.running === null ? 60 : 1, backups)
  const begin = (): Promise<void> =>
    run(async () => {
      await act('POST', '/admin/backups', {})
      backups.again()
      return 'A backup is being written; you may leave this page.'
    })
  return html`<section>
    <h2>Backups</h2>
    ${mayAct('admin') && html`<p><button onClick=${begin}>Write a backup</button></p>`}
    <${Shown}
      of=${backups}
      show=${({ running, last, backups: found }: BackupsJson) =>
        html`${running !== null && html`<p>${running.stage}: <progress max=${Math.max(1, running.total_bytes)} value=${running.done_bytes}></progress> ${size(running.done_bytes)} of ${size(running.total_bytes)}</p>`}
          ${last?.problem != null && html`<p class="problem">The last one failed: ${last.problem}</p>`}
          ${found.length === 0 ? html`<p class="empty">No backup yet.</p>` : html`<${Table} caption="Backups" columns=${BACKUP_COLUMNS} rows=${found} keyOf=${({ path }: Backup) => path} />`}`}
    />
  </section>`
}
