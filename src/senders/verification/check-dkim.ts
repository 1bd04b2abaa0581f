/**
 * Is our DKIM key published at its selector? Compared as a key: spaces, the order of tags and split strings do not
 * matter (senders/README.md "Checks of a domain"). Never throws for what the DNS holds. RFC 6376 §3.6.1, RFC 8463 §4,
 * by way of mailauth.
 */
import { createPublicKey, type KeyObject } from 'node:crypto'
import { getPublicKey } from 'mailauth/lib/tools.js'
import { errorText } from '../../base/errors.ts'
import type { Resolver } from '../../network/resolver.ts'
import type { DkimKeyRecord, DomainRecord, PublicDkimKey } from '../../store/records/sender-records.ts'
import { publicKeyOf } from '../records/dkim-keys.ts'
import { failed, missing, noAnswer, recordsIn, verified, type RecordFinding } from './finding.ts'
import { doubledNameHint, QUOTED_HINT, unquoted, wildcardHint } from './record-hints.ts'
import { dkimRecordName, dkimRecordValue } from '../records/required-records.ts'

/** RFC 8301 §3.2: shorter keys are not to be accepted. */
const LEAST_KEY_BITS = 1_024
/** RFC 6376 §3.6.1: a record may say for which hash it is; ours is sha256. */
const HASH = 'sha256'
/** Ours: what is longer is no key. One of 16,384 bits has 2,800 characters. */
const MOST_RECORD_CHARACTERS = 8_192
const REPLACE = 'replace it by the value shown here'

export async function checkDkim(
  key: DkimKeyRecord,
  domain: DomainRecord,
  earlierKeys: readonly PublicDkimKey[],
  lookups: Resolver,
): Promise<RecordFinding> {
  const name = dkimRecordName(domain.name, key.selector)
  const answer = await lookups.txt(name)
  if (answer.kind === 'no-answer') return noAnswer(answer.reason)
  if (answer.kind !== 'found') return missing('TXT', name, await missingHint(domain.name, name, lookups))
  const [record = '', ...others] = answer.records
  if (others.length > 0) return severalRecords(answer.records, name, key)
  const problem = await keyProblem(record, name, key)
  if (problem === undefined) return verified(answer.records)
  return failed(answer.records, problem, await wrongHint({ record, name, key, domain, earlierKeys, lookups }))
}

async function keyProblem(record: string, name: string, key: PublicDkimKey): Promise<string | undefined> {
  if (record.length > MOST_RECORD_CHARACTERS) return `the record at ${name} is too long for a DKIM key`
  try {
    const published = await publishedKey(record, name)
    return published.equals(publicKeyOf(key)) ? undefined : `another key is published at ${name}`
  } catch (thrown) {
    return `the record at ${name} is no DKIM key: ${errorText(thrown)}`
  }
}

async function publishedKey(record: string, name: string): Promise<KeyObject> {
  const found = await getPublicKey('DKIM', name, LEAST_KEY_BITS, async () => [[record]], { hashAlgo: HASH })
  // A record without k= is for RSA (RFC 6376 §3.6.1): receivers do not take it for anything else.
  if (found.warnings.includes('key-type-inferred')) throw new Error('k=ed25519 is missing')
  return createPublicKey(found.publicKey.toString())
}

function severalRecords(records: string[], name: string, key: DkimKeyRecord): RecordFinding {
  const error = `${records.length} TXT records at ${name}`
  const value = dkimRecordValue(key)
  const isSplit = records.length === 2 && [records.join(''), records.toReversed().join('')].includes(value)
  const hint = isSplit
    ? 'the value was split over two records: it must be one record that has both strings'
    : 'keep only the record shown here: with several, receivers may read the wrong one'
  return failed(records, error, hint)
}

async function missingHint(domain: string, name: string, lookups: Resolver): Promise<string | undefined> {
  // A tag p=, at the start or after a semicolon.
  const isWanted = (text: string): boolean => /(?:^|;)\s*p\s*=/.test(text)
  const doubled = await doubledNameHint({ domain, name, isWanted, ask: lookups.txt })
  if (doubled !== undefined) return doubled
  const [alias] = recordsIn(await lookups.cname(name))
  return alias === undefined ? undefined : `${name} is an alias of ${alias}, which has no TXT record`
}

interface WrongRecord {
  record: string
  name: string
  key: DkimKeyRecord
  domain: DomainRecord
  earlierKeys: readonly PublicDkimKey[]
  lookups: Resolver
}

async function wrongHint(wrong: WrongRecord): Promise<string> {
  const { record, name, key, lookups } = wrong
  const plain = unquoted(record)
  if (plain !== undefined && (await keyProblem(plain, name, key)) === undefined) return QUOTED_HINT
  if (isCut(record, key)) {
    const cut = `the value was cut after ${record.length} characters`
    return `${cut}: enter it as the strings of at most 255 that are shown here, in one record`
  }
  return (await otherKeyHint(wrong)) ?? (await wildcardHint(name, [record], lookups.txt)) ?? REPLACE
}

/** At least the first tags and some of the key are there, and nothing else. */
const LEAST_CUT_CHARACTERS = 40

function isCut(record: string, key: DkimKeyRecord): boolean {
  const withoutSpaces = (text: string): string => text.replaceAll(' ', '')
  const value = withoutSpaces(dkimRecordValue(key))
  const start = withoutSpaces(record)
  return start.length >= LEAST_CUT_CHARACTERS && start.length < value.length && value.startsWith(start)
}

/** Which of the other keys of ours it is: one that was entered in the wrong place, or an earlier one. */
async function otherKeyHint({ record, name, key, domain, earlierKeys }: WrongRecord): Promise<string | undefined> {
  const place = domain.keys.findIndex((each) => each.selector === key.selector)
  for (const [index, other] of domain.keys.entries()) {
    if (index !== place && (await keyProblem(record, name, other)) === undefined) {
      const age = index < place ? 'an older' : 'another'
      return `this is ${age} key of the domain, of the selector ${other.selector}: ${REPLACE}`
    }
  }
  for (const earlier of earlierKeys) {
    if ((await keyProblem(record, name, earlier)) === undefined) {
      return `this is an older key, from before the domain was removed and added anew: ${REPLACE}`
    }
  }
  return undefined
}
