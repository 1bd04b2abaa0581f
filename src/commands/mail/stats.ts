/** `sternpost stats`: what happened to messages, by hour or day, as the console draws it (http/README.md "Statistics"). */
import { Option, type Command } from 'commander'
import { statisticsQuerySchema, statisticsRowSchema, type StatisticsRowJson } from '../../api/statistics.ts'
import { askRows, withQuery } from '../shared/api-client.ts'
import { timeFlag } from '../shared/flag-values.ts'
import { printNote, printResult } from '../shared/print.ts'
import { columnsText, localTime, type Columns } from '../shared/text.ts'
import { addVerb, type Given, type VerbFlags } from '../shared/verb.ts'

type StatsFlags = VerbFlags & Given<'by' | 'interval' | 'since' | 'until'>

/** Events have a row of another form. */
const GROUPS = statisticsQuerySchema.shape.group_by
  .unwrap()
  .unwrap()
  .options.filter((each) => each !== 'event')

export function addStatsCommand(program: Command): void {
  const shown = 'what happened to messages, by hour or day'
  addVerb(program, 'stats', shown, '--by provider --since 2d --interval hour')
    .addOption(new Option('--by <group>', 'a row for each of them').choices(GROUPS).default('all'))
    .addOption(new Option('--interval <interval>', 'of a row').choices(['hour', 'day']).default('day'))
    .option('--since <time>', 'from then on: 2h, 2026-11-21, 2026-11-21T12:00', '7d')
    .option('--until <time>', 'until then')
    .action(stats)
}

async function stats(flags: StatsFlags): Promise<void> {
  const { by, interval, since, until } = flags
  const query = {
    group_by: by,
    interval,
    after: since === undefined ? undefined : timeFlag('--since', since),
    before: until === undefined ? undefined : timeFlag('--until', until),
  }
  const rows = await askRows(flags, statisticsRowSchema, withQuery('/v1/stats', query))
  printResult(flags, rows, () => columnsText(COLUMNS, rows))
  if (rows.length === 0) printNote(flags, 'No mail in this time.')
}

const COLUMNS: Columns<StatisticsRowJson> = {
  FROM: ({ at }) => localTime(at),
  OF: ({ key }) => key,
  ACCEPTED: ({ accepted }) => accepted,
  DELIVERED: ({ delivered }) => delivered,
  DEFERRED: ({ deferred }) => deferred,
  BOUNCED: ({ bounced }) => bounced,
  COMPLAINED: ({ complained }) => complained,
  OPENED: ({ opened }) => opened,
  CLICKED: ({ clicked }) => clicked,
}
