/** What `sternpost setup` tells: DNS records, also as a zone file, reverse names, the key, the next command. */
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { errorText } from '../../base/errors.ts'
import { shellWord } from '../../base/shell-word.ts'
import type { Configuration } from '../../config/load-configuration.ts'
import { applianceRecords, applianceZone } from '../../senders/records/zone-file.ts'
import { checkCommand } from '../sending/domain.ts'
import { recordsToPublish } from '../sending/domain-report.ts'
import { commandText } from '../shared/command-text.ts'
import { printableLines, tableText } from '../shared/text.ts'
import type { DomainJson } from '../../api/domain.ts'
import { serverOf } from './units.ts'

export type SetupResult = ReturnType<typeof report>

interface SetupOutcome {
  folder: string
  configuration: Configuration
  /** Paths from the folder on. */
  files: { added: string[]; kept: string[] }
  warnings: string[]
  server: 'started' | 'running' | 'not started'
  inServer: Introduced | null
  /** As it was asked for. */
  domain: string | null
}

export interface Introduced {
  domain: { view: DomainJson; zone: string; isNew: boolean } | null
  /** null: there is one already. */
  key: string | null
}

const ZONE_FILE = 'dns-records.zone'

export function report(parts: SetupOutcome, notes: SetupNotes) {
  const { folder, configuration, server, inServer } = parts
  const { hostname, domains } = configuration.server
  const ips = Object.values(configuration.pools.pools).flatMap((pool) =>
    pool.ips.map(({ address, hostname: name }) => ({ address, hostname: name })),
  )
  const facts = { hostname, targets: domains.targets, dmarcReportAddress: domains.dmarc_report_address }
  const own = applianceRecords(facts, ips)
  const added = inServer?.domain ?? null
  const theirs = added === null ? [] : recordsToPublish(added.view)
  const records = [...own, ...theirs].map(({ type, name, value, purpose }) => ({ type, name, value, purpose }))
  const zoneFile = join(folder, ZONE_FILE)
  keepZone(zoneFile, { own: applianceZone(hostname, own, ips), theirs: added?.zone ?? null }, notes)
  notes.say(`\nPublish these DNS records (as a zone file: ${zoneFile}):\n`)
  const rows = records.map(({ type, name, value }) => [type, name, value])
  notes.say(tableText(['TYPE', 'NAME', 'VALUE'], rows, true))
  notes.say('Set these reverse names (PTR) where the addresses come from:\n')
  const names = ips.map(({ address, hostname: name }) => [address, name])
  notes.say(tableText(['IP', 'NAME'], names, true))
  const masterKey = masterKeyIn(folder) ?? 'the master key'
  notes.say(`Keep a copy of ${masterKey} elsewhere: it is in no backup, and without it stored keys are lost.`)
  const key = inServer?.key ?? null
  if (key !== null) notes.sayKey('\nAPI key, shown only now:  ', key)
  const next = nextCommand(parts)
  return {
    hostname,
    warnings: parts.warnings,
    server,
    records,
    files: parts.files,
    key,
    next,
    domain: added === null ? null : { name: added.view.domain, created: added.isNew },
    reverse_names: ips.map(({ address, hostname: name }) => ({ ip: address, name })),
    zone_file: zoneFile,
  }
}

/** One that has the records of a domain is not replaced by one that has none. A full disk is no reason to stop here. */
function keepZone(file: string, { own, theirs }: { own: string; theirs: string | null }, notes: SetupNotes): void {
  if (theirs === null && existsSync(file)) return
  try {
    writeFileSync(file, `${own}\n${theirs ?? ''}`)
  } catch (thrown) {
    notes.say(`warning: no zone file was written: ${errorText(thrown)}`)
  }
}

function nextCommand({ folder, server, inServer, domain: asked }: SetupOutcome): string {
  const domain = inServer?.domain?.view.domain ?? asked
  const given = serverOf(folder)
  if (server !== 'not started') {
    return domain === null ? commandText(given, { verb: 'doctor' }) : checkCommand(given, domain)
  }
  const credentials = masterKeyIn(folder) === null ? '' : `CREDENTIALS_DIRECTORY=${shellWord(folder)} `
  const serve = `${credentials}${commandText({ config: folder }, { verb: 'serve' })}`
  const again = commandText(given, { verb: 'setup', options: { domain: domain ?? undefined } })
  return `${serve}, and beside it: ${again}`
}

/** null: it is read from elsewhere. */
function masterKeyIn(folder: string): string | null {
  const file = join(folder, 'master.key')
  return existsSync(file) ? file : null
}

const PRIVATE = 0o600
const SHOWN_CHARACTERS = 4

/** What `sternpost setup` says, on the screen and in its log, where keys are cut to their last four characters. */
export interface SetupNotes {
  say(text: string): void
  /** Shown whole, where the screen shows keys, and cut in the log. */
  sayKey(before: string, key: string): void
  /** Writes the log; one that cannot be written is said, and is no failure. */
  close(): void
}

/** `file`: of the log. */
export function createSetupNotes(file: string, show: (text: string) => void, showsKey: boolean): SetupNotes {
  const lines: string[] = [new Date().toISOString()]
  return {
    say(text) {
      const shown = printableLines(text)
      show(`${shown}\n`)
      lines.push(shown)
    },
    sayKey(before, key) {
      if (showsKey) show(`${before}${key}\n`)
      lines.push(`${before}…${key.slice(-SHOWN_CHARACTERS)}`)
    },
    close() {
      try {
        writeFileSync(file, `${lines.join('\n')}\n`, { mode: PRIVATE, flag: 'a' })
      } catch (thrown) {
        show(`warning: no log was written: ${errorText(thrown)}\n`)
      }
    },
  }
}
