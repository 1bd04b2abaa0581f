/** API keys, people with their roles, sessions, and the audit of what was done. */
import type { CreatedKeyJson, KeyJson } from '../../api/key.ts'
import type { AuditEntryJson, LoginLinkJson, PersonJson, SessionJson } from '../../api/people.ts'
import { act } from '../parts/api.ts'
import { useList } from '../parts/data.ts'
import { nowSeconds, Time } from '../parts/format.ts'
import { html, useState, type VNode } from '../parts/html.ts'
import { useForm } from '../parts/once.ts'
import { go, place } from '../parts/place.ts'
import { run, runLater } from '../parts/said.ts'
import { Copy, Page, ShownList, State, Table } from '../parts/ui.ts'
import { isOwner, who } from '../parts/who.ts'

export default function People(): VNode {
  if (!isOwner()) {
    return html`<${Page} title="Keys and people"><p>API keys and people are for owners of this server.</p><//>`
  }
  return html`<${Page} title="Keys and people" command="sternpost key list">
    <${Keys} />
    <${Persons} />
    <${Sessions} />
    <${Audit} />
  <//>`
}

const SCOPES = ['send', 'messages:read', 'domains', 'webhooks', 'ips', 'stats', 'suppressions', 'admin']

function Keys(): VNode {
  const keys = useList<KeyJson>('/keys')
  const [made, setMade] = useState<string | null>(null)
  const add = useForm(async (fields, once) => {
    const domains = String(fields.get('domains'))
      .split(/[\s,]+/)
      .filter(Boolean)
    const body = { name: fields.get('name'), mode: fields.get('mode'), scopes: fields.getAll('scope'), domains }
    const { key = null } = await act<CreatedKeyJson>('POST', '/keys', body, once)
    setMade(key)
    keys.again()
    if (key === null) return 'The key was made before, and got lost on its way: revoke it, and make another.'
    return 'The key was made.'
  })
  const columns = [
    { head: 'Name', cell: ({ name }: KeyJson) => name },
    { head: 'Key', cell: ({ mode, last4 }: KeyJson) => `${mode} …${last4}` },
    { head: 'May', cell: ({ scopes }: KeyJson) => scopes.join(', ') },
    { head: 'For', cell: ({ domains }: KeyJson) => (domains.length === 0 ? 'all domains' : domains.join(', ')) },
    { head: 'Last used', cell: (key: KeyJson) => html`<${Time} at=${key.last_used_at} relative />` },
    { head: 'State', cell: (key: KeyJson) => html`<${State} of=${stateOf(key)} />` },
    {
      head: 'Acts',
      cell: ({ id, name, revoked_at: revokedAt }: KeyJson) => {
        const revoke = (): void =>
          runLater(`The key ${name} will stop working.`, async () => {
            await act('DELETE', `/keys/${id}`)
            keys.again()
            return `The key ${name} is revoked.`
          })
        return revokedAt === null && html`<button onClick=${revoke}>Revoke</button>`
      },
    },
  ]
  return html`<section>
    <h2>API keys</h2>
    <details>
      <summary>Make a key</summary>
      <form class="stack" onSubmit=${add}>
        <label>What it is for <input name="name" required maxlength="100" /></label>
        <label>Mode <select name="mode">${who.value?.development !== true && html`<option value="live">live</option>`}<option value="test">test: nothing leaves the server</option></select></label>
        <fieldset>
          <legend>What it may do</legend>
          ${SCOPES.map((scope) => html`<label key=${scope}><input type="checkbox" name="scope" value=${scope} defaultChecked=${scope === 'send'} /> ${scope}</label>`)}
        </fieldset>
        <label>Only for these sending domains (empty: all) <input name="domains" /></label>
        <button class="main">Make the key</button>
      </form>
    </details>
    ${made !== null && html`<p class="once">The key, shown only now: <${Copy} text=${made} /></p>`}
    <${ShownList}
      of=${keys}
      empty="No key yet."
      show=${(entries: KeyJson[]) => html`<${Table} caption="API keys" columns=${columns} rows=${entries} keyOf=${({ id }: KeyJson) => id} />`}
    />
  </section>`
}

function stateOf({ revoked_at: revokedAt, expires_at: expiresAt }: KeyJson): string {
  if (revokedAt !== null) return 'revoked'
  return expiresAt !== null && expiresAt <= nowSeconds() ? 'expired' : 'enabled'
}

const ROLES = ['owner', 'operator', 'reader']

function Persons(): VNode {
  const people = useList<PersonJson>('/admin/people')
  const [link, setLink] = useState<LoginLinkJson | null>(null)
  const invite = useForm(async (fields) => {
    setLink(await act<LoginLinkJson>('POST', '/admin/people', { name: fields.get('name'), role: fields.get('role') }))
    people.again()
    return 'A link was made.'
  })
  const change = ({ id, role: before }: PersonJson, select: HTMLSelectElement): Promise<void> =>
    run(async () => {
      const role = select.value
      try {
        await act('PATCH', `/admin/people/${id}`, { role })
      } catch (thrown) {
        select.value = before
        throw thrown
      }
      people.again()
      return `The role is ${role} now.`
    })
  const columns = [
    { head: 'Name', cell: ({ name }: PersonJson) => name },
    {
      head: 'Role',
      cell: (person: PersonJson) =>
        html`<select aria-label=${`Role of ${person.name}`} onChange=${(event: Event) => change(person, event.target as HTMLSelectElement)}>
          ${ROLES.map((each) => html`<option key=${each} selected=${each === person.role}>${each}</option>`)}
        </select>`,
    },
    { head: 'Since', cell: (person: PersonJson) => html`<${Time} at=${person.created_at} />` },
    {
      head: 'Acts',
      cell: ({ id, name }: PersonJson) => {
        const remove = (): void =>
          runLater(`${name} will be logged out everywhere, and may not come back.`, async () => {
            await act('DELETE', `/admin/people/${id}`)
            people.again()
            return `${name} was removed.`
          })
        return html`<button onClick=${remove}>Remove</button>`
      },
    },
  ]
  return html`<section>
    <h2>People</h2>
    <form class="inline" onSubmit=${invite}>
      <label>Name <input name="name" required maxlength="64" autocomplete="off" /></label>
      <label>Role <select name="role">${ROLES.map((role) => html`<option key=${role}>${role}</option>`)}</select></label>
      <button>Make a link that logs in</button>
    </form>
    ${link !== null && html`<p class="once">For ${link.person.name}, once, until <${Time} at=${link.expires_at} />: <${Copy} text=${link.url} /></p>`}
    <${ShownList}
      of=${people}
      empty="Nobody yet."
      show=${(entries: PersonJson[]) => html`<${Table} caption="People" columns=${columns} rows=${entries} keyOf=${({ id }: PersonJson) => id} />`}
    />
  </section>`
}

function Sessions(): VNode {
  const sessions = useList<SessionJson>('/admin/sessions')
  const columns = [
    { head: 'Who', cell: ({ person, key_id: key }: SessionJson) => person?.name ?? key },
    { head: 'From', cell: ({ address }: SessionJson) => address },
    { head: 'Browser', cell: ({ user_agent: agent }: SessionJson) => agent },
    { head: 'Last used', cell: (session: SessionJson) => html`<${Time} at=${session.used_at} relative />` },
    {
      head: 'Acts',
      cell: ({ id }: SessionJson) => {
        const end = (): Promise<void> =>
          run(async () => {
            await act('POST', `/admin/sessions/${id}/end`, {})
            sessions.again()
            return 'The session is ended.'
          })
        return html`<button onClick=${end}>End</button>`
      },
    },
  ]
  return html`<section>
    <h2>Sessions</h2>
    <${ShownList}
      of=${sessions}
      empty="No session is open."
      show=${(entries: SessionJson[]) => html`<${Table} caption="Sessions" columns=${columns} rows=${entries} keyOf=${({ id }: SessionJson) => id} />`}
    />
  </section>`
}

const AUDIT_COLUMNS = [
  { head: 'When', cell: ({ at }: AuditEntryJson) => html`<${Time} at=${at} />` },
  { head: 'Who', cell: ({ actor }: AuditEntryJson) => actor },
  { head: 'Did', cell: (entry: AuditEntryJson) => entry.act },
  { head: 'To', cell: ({ facts }: AuditEntryJson) => html`<code>${JSON.stringify(facts)}</code>` },
]

function Audit(): VNode {
  const text = place.value.query.get('q') ?? ''
  const entries = useList<AuditEntryJson>('/admin/audit', { q: text })
  const search = (event: SubmitEvent): void => {
    event.preventDefault()
    go(`people?q=${encodeURIComponent(String(new FormData(event.target as HTMLFormElement).get('q')))}`)
  }
  return html`<section>
    <h2>What was done</h2>
    <form role="search" class="inline" onSubmit=${search}>
      <label>Name, act or object <input name="q" data-query defaultValue=${text} key=${text} /></label>
      <button>Find</button>
    </form>
    <${ShownList}
      of=${entries}
      empty="Nothing is like that."
      show=${(found: AuditEntryJson[]) => html`<${Table} caption="What was done, newest first" columns=${AUDIT_COLUMNS} rows=${found} keyOf=${(entry: AuditEntryJson) => `${entry.request_id} ${entry.act}`} />`}
    />
  </section>`
}
