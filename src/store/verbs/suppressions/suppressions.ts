/**
 * The suppression list: adding, removing and listing addresses nothing is sent to; whether mail may go to one, and the
 * end of a message that may not. An address is kept in small letters (`listedAddress`); each is there once for a list, a
 * scope and a sending domain.
 */
import type { Database } from '../../engine/database.ts'
import { identifierFromBytes, newIdentifier } from '../../../base/identifier.ts'
import type { SuppressionRecord, SuppressionReason } from '../../records/suppression-records.ts'
import { createWalk, pageOf, positionAfter } from '../tools/pages.ts'
import { FIND_ERASED, isErased, listedAddress, listedForms } from '../tools/stored-address.ts'
import { ask } from '../tools/statements.ts'
import { storedIdentifier } from '../tools/stored-identifier.ts'
import type { SomeVerbs, Verb } from '../tools/verb-types.ts'
import type { Bounce } from '../../../mail/reply/delivery-outcome.ts'
import { bouncedData, suppressedData } from '../../../mail/event.ts'
import { bounceInDoubt } from '../../../mail/expiry-bounce.ts'
import type { Owner } from '../../../mail/reach.ts'
import { createOwners } from '../events/owners.ts'
import { createBounceWriter, type RecordedEvent, newEvent } from '../events/record-events.ts'

const EXPLANATIONS: Readonly<Record<SuppressionReason, string>> = {
  hard_bounce: 'earlier mail to it bounced for good',
  complaint: 'its owner reported earlier mail as spam',
  unsubscribe: 'its owner unsubscribed',
  manual: 'it was added by hand',
}

const isListed = (reason: SuppressionReason): string =>
  `the address is on the suppression list (${reason}), ${EXPLANATIONS[reason]}`

/** RFC 3463 §3.8, X.7.1: delivery not authorized. */
const bounceFor = (reason: SuppressionReason): Bounce => ({
  type: 'suppressed',
  category: 'suppressed',
  code: '5.7.1',
  description: `not sent: ${isListed(reason)}`,
})

interface SuppressionRow extends Omit<SuppressionRecord, 'id' | 'isTest' | 'messageId' | 'domain' | 'owners'> {
  seq: number
  id: Buffer
  isTest: number
  domain: string
  owners: string
  messageId: Buffer | null
}

const SUPPRESSION_COLUMNS = `
  suppression_seq as seq, id, address as email, reason, scope, domain, owners, is_test as isTest,
  message_id as messageId, created_at as createdAt`
const listOrNull = (domains: readonly string[]): string | null =>
  domains.length === 0 ? null : JSON.stringify(domains)

/**
 * Between those who added or found one entry, each with its domains: `["a.com","mail.a.com","|","b.org"]`. Nobody's
 * domains between two: the server.
 */
const NEXT_OWNER = '|'

type OwnDomains = readonly string[]

function ownersIn(list: string): OwnDomains[] {
  const owners: string[][] = [[]]
  for (const domain of JSON.parse(list) as string[]) {
    if (domain === NEXT_OWNER) owners.push([])
    else owners.at(-1)?.push(domain)
  }
  return owners
}

const listOf = (owners: readonly OwnDomains[]): string =>
  JSON.stringify(owners.flatMap((own, index) => (index === 0 ? own : [NEXT_OWNER, ...own])))

/** What its owner said is not undone with a bounce, or with what somebody added by hand. */
const isWish = (reason: SuppressionReason): boolean => reason === 'complaint' || reason === 'unsubscribe'

/** `there`: for the same owner and as good a reason. `changed`: it has one more owner, or another reason. */
type Written = 'added' | 'changed' | 'there'

/** Adds it, or joins it to the one at its place. */
function createSuppressionWriter(database: Database): (suppression: SuppressionRecord) => Written {
  const add = database.prepare(`
    insert into suppressions (id, address, is_test, scope, domain, owners, reason, message_id, created_at)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?)
    on conflict do nothing`)
  const find = createFindSuppression(database)
  const join = database.prepare<[string, number]>('update suppressions set owners = ? where suppression_seq = ?')
  const explain = database.prepare<[SuppressionReason, Buffer | null, number, number]>(`
    update suppressions set reason = ?, message_id = ?, created_at = ? where suppression_seq = ?`)
  return (suppression) => {
    const { reason, messageId, createdAt } = suppression
    const own = suppression.owners
    const message = messageId === null ? null : storedIdentifier('msg', messageId)
    const id = storedIdentifier('sup', suppression.id)
    const place = placeOf(suppression)
    if (add.run(id, ...place, listOf([own]), reason, message, createdAt).changes === 1) return 'added'
    const row = find.get(...place)
    if (row === undefined) return 'there'
    const owners = ownersIn(row.owners)
    const isJoining = !owners.some((known) => known.join() === own.join())
    if (isJoining) join.run(listOf([...owners, own]), row.seq)
    const isExplaining = isWish(reason) && !isWish(row.reason)
    if (isExplaining) explain.run(reason, message, createdAt, row.seq)
    return isJoining || isExplaining ? 'changed' : 'there'
  }
}

/**
 * What recipients and their servers brought onto the list of another database comes onto this one's, as if it were added
 * anew; returns how many entries that added or changed.
 */
export function createSuppressionCopy(from: Database, to: Database): () => number {
  const list = from.prepare<[], SuppressionRow>(`select ${SUPPRESSION_COLUMNS} from suppressions`)
  const add = createSuppressionWriter(to)
  return () => {
    let changed = 0
    for (const row of list.iterate()) {
      const { reason, owners } = broughtByRecipient(row)
      const written = owners.map((own) => add({ ...toRecord(row), reason, owners: [...own] }))
      if (written.some((each) => each !== 'there')) changed++
    }
    return changed
  }
}

/**
 * The part of an entry that no administrator or customer may have added by mistake. Of what is added for all domains,
 * mail alone has owners with domains: they tell of a bounce also where somebody had added the address by hand before.
 * Whoever was erased keeps away whatever the reason was.
 */
function broughtByRecipient({ email, reason, domain, owners: list, messageId }: SuppressionRow): {
  reason: SuppressionReason
  owners: readonly OwnDomains[]
} {
  const owners = ownersIn(list)
  if (isErased(email)) return { reason, owners }
  const ofMail = domain === '' ? owners.filter((own) => own.length > 0) : []
  if (ofMail.length > 0) return { reason: reason === 'manual' ? 'hard_bounce' : reason, owners: ofMail }
  return { reason, owners: isWish(reason) || messageId !== null ? owners : [] }
}

type Place = [address: string, isTest: number, scope: string, domain: string]

const placeOf = ({ email, isTest, scope, domain }: SuppressionRecord): Place => [
  listedAddress(email),
  Number(isTest),
  scope,
  domain ?? '',
]

function createFindSuppression(database: Database) {
  return database.prepare<Place, SuppressionRow>(`
    select ${SUPPRESSION_COLUMNS} from suppressions where address = ? and is_test = ? and scope = ? and domain = ?`)
}

/**
 * Puts the recipient of a message onto the list of the message's mode, for the mail of every sending domain; returns
 * whether that changed the list. The entry belongs to the domain of the message.
 */
export function createRecipientSuppression(database: Database) {
  const add = createSuppressionWriter(database)
  const owners = createOwners(database)
  return (
    { id, recipient, isTest }: { id: string; recipient: string; isTest: number },
    reason: SuppressionReason,
    scope: string,
    now: number,
  ): boolean =>
    add({
      id: newIdentifier('sup', now),
      email: recipient,
      reason,
      scope,
      domain: null,
      owners: [...new Set(owners.ofMessage(id).domains)],
      isTest: isTest === 1,
      messageId: id,
      createdAt: now,
    }) !== 'there'
}

export function createSuppressionWrites(database: Database) {
  const add = createSuppressionWriter(database)
  const find = createFindSuppression(database)
  // Also an erased one, when its owner gives it again.
  const findOfAddress = database.prepare<
    [{ address: string; asItIs: string; isTest: number; scope: string | null }],
    { seq: number; owners: string }
  >(`
    select suppression_seq as seq, owners
    from suppressions
    where address in (@address, @asItIs, erased_address(@address), erased_address(@asItIs)) and is_test = @isTest
      and (@scope is null or scope = @scope)`)
  const remove = database.prepare<[number]>('delete from suppressions where suppression_seq = ?')
  const leave = database.prepare<[string, number]>('update suppressions set owners = ? where suppression_seq = ?')
  return {
    addSuppression(suppression) {
      const isNew = add(suppression) === 'added'
      const row = find.get(...placeOf(suppression))
      return { suppression: row === undefined ? suppression : toRecord(row), isNew }
    },
    addSuppressions: (suppressions) => suppressions.filter((each) => add(each) === 'added').length,
    removeSuppressions({ email, scope, isTest, domains }) {
      const [address, asItIs] = listedForms(email)
      const rows = findOfAddress.all({ address, asItIs, isTest: Number(isTest), scope })
      const isAsking = (own: OwnDomains): boolean =>
        domains.length === 0 || own.some((domain) => domains.includes(domain))
      const removed = rows.filter(({ owners }) => ownersIn(owners).some(isAsking))
      for (const { seq, owners } of removed) {
        const left = ownersIn(owners).filter((own) => !isAsking(own))
        if (left.length === 0) remove.run(seq)
        else leave.run(listOf(left), seq)
      }
      return removed.length
    },
  } satisfies SomeVerbs
}

/** Newest first; entries of one address are few, and sorted here. */
export function createListSuppressions(database: Database): Verb<'listSuppressions'> {
  const source = `
    select suppression_seq as seq, reason, scope, owners, created_at
    from suppressions
    where is_test = @isTest and suppression_seq < @before
    order by suppression_seq desc`
  // `@domains` is a JSON list; null: all.
  const condition = `
    (@reason is null or walked.reason = @reason)
    and (@scope is null or walked.scope = @scope)
    and (@since is null or walked.created_at >= @since)
    and (@domains is null or exists (
      select 1 from json_each(walked.owners) where value in (select value from json_each(@domains))))`
  const walk = createWalk<number>(database, 'seq', source, condition)
  const find = database.prepare<[number], SuppressionRow>(`
    select ${SUPPRESSION_COLUMNS} from suppressions where suppression_seq = ?`)
  const findOfAddress = database.prepare<[string, string, number], SuppressionRow>(`
    select ${SUPPRESSION_COLUMNS} from suppressions where address in (?, ?) and is_test = ?`)
  return ({ isTest, domains, email, reason, scope, since, limit, after }) => {
    const before = positionAfter(after)
    if (email === null) {
      const asked = { isTest: Number(isTest), domains: listOrNull(domains), before, reason, scope, since }
      const { found, next } = walk(asked, limit)
      const suppressions = found.flatMap((seq) => find.get(seq) ?? []).map(toRecord)
      return { suppressions, next: next === null ? null : String(next) }
    }
    const rows = findOfAddress
      .all(...listedForms(email), Number(isTest))
      .filter(
        (row) =>
          row.seq < before &&
          (reason === null || row.reason === reason) &&
          (scope === null || row.scope === scope) &&
          (domains.length === 0 || ownersOf(row).some((owner) => domains.includes(owner))) &&
          (since === null || row.createdAt >= since),
      )
    const { page, next } = pageOf(
      rows.sort((left, right) => right.seq - left.seq),
      limit,
      ({ seq }) => String(seq),
    )
    return { suppressions: page.map(toRecord), next }
  }
}

const ownersOf = ({ owners }: Pick<SuppressionRow, 'owners'>): string[] => ownersIn(owners).flat()

const toRecord = ({ seq: _seq, id, isTest, messageId, ...row }: SuppressionRow): SuppressionRecord => ({
  ...row,
  domain: row.domain === '' ? null : row.domain,
  owners: ownersOf(row),
  id: identifierFromBytes('sup', id),
  isTest: isTest === 1,
  messageId: messageId === null ? null : identifierFromBytes('msg', messageId),
})

/**
 * Why mail is not sent to an address. What is returned begins a round of questions. `list`: the
 * one that the mail belongs to; without one only scope `all` counts. The scopes of one address are few, and are chosen
 * from here: of `scope in (…)` SQLite makes a table of its own at each call.
 */
export function createSuppressionCheck(database: Database) {
  const find = database.prepare<[string, number], ListedScope>(`
    select scope, domain, reason from suppressions where address = +? and is_test = +?`)
  const findAnyErased = database.prepare<[], number>(FIND_ERASED).pluck()
  const findErased = database.prepare<[string, number], ListedScope>(`
    select scope, domain, reason from suppressions where address = erased_address(+?) and is_test = +?`)
  return () => {
    let anyErased: (() => number[]) | undefined
    /** Asks; what is returned tells why mail of this owner, for this list, may not go to the address; null: it may. */
    return (address: string, { isTest, domains }: Owner): ((list: string | null) => SuppressionReason | null) => {
      // Nearly always one.
      const forms = [...new Set(listedForms(address))]
      const listed = forms.map((form) => ask(find, form, Number(isTest)))
      anyErased ??= ask(findAnyErased)
      const isAnyErased = anyErased
      return (list) => {
        const reasonAmong = (rows: readonly ListedScope[]): SuppressionReason | null => {
          const meant = rows.filter(({ domain }) => domain === '' || domains.includes(domain))
          const found = meant.find(({ scope }) => scope === 'all') ?? meant.find(({ scope }) => scope === list)
          return found?.reason ?? null
        }
        const reason = reasonAmong(listed.flatMap((rows) => rows()))
        if (reason !== null || isAnyErased().length === 0) return reason
        return reasonAmong(forms.flatMap((form) => findErased.all(form, Number(isTest))))
      }
    }
  }
}

interface ListedScope {
  scope: string
  domain: string
  reason: SuppressionReason
}

interface SuppressedEnd {
  /** The row of the message. */
  key: number
  id: string
  recipient: string
  reason: SuppressionReason
  /** A possible duplicate: nobody may say that it was not sent. */
  mayHaveArrived?: boolean
}

/**
 * Writes the bounce of a message whose row ends as suppressed, or as bounced where it may have arrived, and returns the
 * events that go with it.
 */
export function createSuppressedEnding(database: Database): (end: SuppressedEnd, now: number) => RecordedEvent[] {
  const addBounce = createBounceWriter(database)
  return ({ key, id, recipient, reason, mayHaveArrived = false }, now) => {
    const bounce = mayHaveArrived ? bounceInDoubt(`not sent again: ${isListed(reason)}`) : bounceFor(reason)
    addBounce(key, bounce)
    const told = newEvent('email.bounced', bouncedData(id, recipient, bounce), key, now)
    if (mayHaveArrived) return [told]
    return [told, newEvent('email.suppressed', suppressedData(id, recipient, reason), key, now)]
  }
}
