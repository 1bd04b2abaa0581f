/**
 * Where a message is that is on its way: for how long, in whose hands, at which stage; and plainly so when it does not
 * move (messages/README.md "Explain"). Pure.
 */
import { SECOND } from '../../base/clock.ts'
import type { ThreadPlace, Whereabouts } from '../../mail/whereabouts.ts'
import type { MessageView } from '../../store/records/lookup-records.ts'
import type { ExplainedCheck } from './explain-checks.ts'
import { timeSpan } from './time-words.ts'

interface SendingFacts {
  message: Pick<MessageView, 'id' | 'claimedAt'>
  /** Undefined: nobody holds it. */
  where: Whereabouts | undefined
  /** The longest that delivery waits at any one stage. */
  longestStageMilliseconds: number
  now: number
}

export interface SendingReport {
  summary: string
  /** Fails when the message does not move. */
  check: ExplainedCheck
  /** null: all is well. */
  advice: string[] | null
}

/** A claim is with the store for a moment before anybody can hold it. */
const JUST_CLAIMED = 5 * SECOND
/** So many times the longest stage in one place is a mistake, and no slow server. */
const PATIENCE = 2

export function explainSending(facts: SendingFacts): SendingReport {
  const { message, where, now } = facts
  const age = now - (message.claimedAt ?? now)
  const onItsWay = `It has been on its way for ${timeSpan(age)}`
  if (where === undefined) return inNobodysHand(message, age, onItsWay)
  if (where.kind === 'elsewhere') return atOtherNode(message, where.node, onItsWay)
  const holder = holderOf(where)
  const summary = `${onItsWay}: ${placeWords(where)}.`
  const still = stillFor(where, age)
  if (isBehindOthers(where)) return waiting(where, summary, still <= PATIENCE * facts.longestStageMilliseconds)
  if (still <= PATIENCE * facts.longestStageMilliseconds) {
    const status = isSilent(where) ? 'warn' : 'pass'
    return { summary, check: { check: 'delivery', status, seen: holder }, advice: null }
  }
  const stuck = isSilent(where)
    ? `How far it is there is not known.`
    : `For ${timeSpan(still)} it has not moved there, and no stage of a delivery takes so long.`
  return {
    summary: `${summary} ${stuck}`,
    check: { check: 'delivery', status: 'fail', seen: `${holder}, for ${timeSpan(still)}` },
    advice: ['The server still waits for it: nobody else can send it meanwhile.', ...whatToDo(message)],
  }
}

/** In this process. */
type Here = Exclude<Whereabouts, { kind: 'elsewhere' }>

/** As long as what is before it takes: no stage of its own has begun. */
function isBehindOthers(where: Here): boolean {
  if (where.kind === 'thread') return where.place?.stage === 'queue' || where.place?.stage === 'turn'
  return where.kind === 'path'
}

function waiting(where: Here, summary: string, isUsual: boolean): SendingReport {
  const check: ExplainedCheck = { check: 'delivery', status: isUsual ? 'pass' : 'warn', seen: holderOf(where) }
  return { summary: isUsual ? summary : `${summary} Other messages are before it.`, check, advice: null }
}

function inNobodysHand(message: SendingFacts['message'], age: number, onItsWay: string): SendingReport {
  if (age < JUST_CLAIMED) {
    const check = { check: 'delivery', status: 'pass', seen: 'just taken from the queue' } as const
    return { summary: `${onItsWay}: it was just taken from the queue.`, check, advice: null }
  }
  return {
    summary: `${onItsWay}, and it is in nobody's hand: no part of delivery has it.`,
    check: { check: 'delivery', status: 'fail', seen: "in nobody's hand" },
    advice: [
      'It is not lost: the server looks for such messages every minute and gives them back to the queue by itself.',
      ...whatToDo(message),
    ],
  }
}

function atOtherNode({ id }: SendingFacts['message'], node: string, onItsWay: string): SendingReport {
  return {
    summary: `${onItsWay}: the node ${node} has it.`,
    check: { check: 'delivery', status: 'pass', seen: `node ${node}` },
    advice: [`There "sternpost queue explain ${id}" says how far it is.`],
  }
}

function whatToDo({ id }: SendingFacts['message']): string[] {
  return [
    'A restart of the server frees it at once and loses nothing. If its final dot may have gone out, it waits a few ' +
      'minutes then, and may arrive twice.',
    `Report it, with the lines of the server's log of that time and those that name ${id}.`,
  ]
}

function isSilent(where: Here): boolean {
  return where.kind === 'thread' && where.place === null
}

/** How long it has been where it is; where that is not kept, it has been there since shortly after its claim. */
function stillFor(where: Here, age: number): number {
  switch (where.kind) {
    case 'placing':
    case 'path':
      return age
    case 'thread':
      return where.place?.milliseconds ?? age
    case 'recording':
      return where.milliseconds
  }
}

function holderOf(where: Here): string {
  switch (where.kind) {
    case 'placing':
      return 'choice of the IP'
    case 'path':
      return `path from ${where.from} to ${where.to}`
    case 'thread':
      return `delivery thread ${where.thread}${where.place === null ? ', which does not answer' : ''}`
    case 'recording':
      return 'record of its outcome'
  }
}

function placeWords(where: Here): string {
  switch (where.kind) {
    case 'placing':
      return 'its hosts are looked up in the DNS, and the IP is chosen that sends it'
    case 'path':
      return `it waits for room on the path from ${where.from} to ${where.to}`
    case 'thread':
      return threadWords(where)
    case 'recording':
      return `what became of it has been on the way into the store for ${timeSpan(where.milliseconds)}`
  }
}

function threadWords({ thread, from, to, place }: Extract<Whereabouts, { kind: 'thread' }>): string {
  const name = `delivery thread ${thread}`
  if (place === null) return `${name} has it, to send it from ${from} to ${to}, and did not answer within a second`
  const time = timeSpan(place.milliseconds)
  const server = place.host === null ? to : `${place.host} [${place.address}]`
  switch (place.stage) {
    case 'queue':
      return `in ${name} it has waited for a connection from ${from} to ${server} for ${time}`
    case 'connect':
      return `${name} began to connect from ${from} to ${server} ${time} ago`
    default:
      return `${name} sends it from ${from} to ${server}; ${dialogueWords(place.stage, time)}`
  }
}

function dialogueWords(stage: Exclude<ThreadPlace['stage'], 'queue' | 'connect'>, time: string): string {
  switch (stage) {
    case 'render':
      return `its content is being read and signed, for ${time}`
    case 'turn':
      return `it has waited for the message before it for ${time}`
    case 'mail':
    case 'rcpt':
    case 'data':
      return `it has waited for the answer to ${stage.toUpperCase()} for ${time}`
    case 'body':
      return `the last piece of its content began to leave ${time} ago`
    case 'mark':
      return `the final dot has waited for the store for ${time}`
    case 'dot':
      return `the final dot went out ${time} ago`
  }
}
