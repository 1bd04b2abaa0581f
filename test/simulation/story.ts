/**
 * What happens in one simulated world: settings and a list of things with their times, all from one seed. A list can
 * be made shorter, and is a story still.
 */
import { randomSource, type RandomSource } from '../support/random-source.ts'
import type { Habit, HabitTime } from './receivers.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE

export interface Settings {
  /** Messages in so many milliseconds, of each path. */
  rate: { count: number; per_milliseconds: number }
  connections: number
  messagesPerConnection: number
  /** Messages of a connection at once; every server can. */
  inFlight: number
  readyWindow: number
  threads: number
  /** Dedicated IPs; the last is warming when `isWarming`. */
  ips: number
  isWarming: boolean
  /** Of the whole pool; null: none. */
  poolConnections: number | null
  /** Milliseconds a message between threads takes at most. */
  threadDelay: number
  /** A commit takes at most so long, and so does a turn of an event loop. */
  commitTime: number
  turnTime: number
  hasWebhook: boolean
}

export type Happening =
  | {
      what: 'accept'
      count: number
      domain: string
      sender: string
      stream: 'transactional' | 'bulk'
      lifetime: number
      delay: number
    }
  | { what: 'habit'; domain: string; habit: Habit; duration: number; share: number }
  | { what: 'kill'; downFor: number }
  | { what: 'stop'; downFor: number }
  | { what: 'thread-death' }
  | { what: 'jump'; milliseconds: number }
  | { what: 'disk-full'; duration: number }
  | { what: 'slow-store'; duration: number; milliseconds: number }
  | { what: 'reload'; rateShare: number; connections: number }
  | { what: 'hold'; sender: string; duration: number }
  | { what: 'suspend-ip'; ip: number; duration: number }
  | { what: 'suspend-provider'; ip: number; duration: number }
  | { what: 'lose-address'; ip: number; duration: number }
  | { what: 'move-hosts'; domain: string }
  | { what: 'dns'; domain: string; answer: 'no-answer' | 'no-address'; duration: number }
  | { what: 'cancel'; share: number }
  | { what: 'retry-now'; share: number }
  | { what: 'endpoint'; answer: 500 | 'silent'; duration: number }

export type Mail = Extract<Happening, { what: 'accept' }>

export interface StoryItem {
  at: number
  happening: Happening
}

export interface Story {
  seed: number
  settings: Settings
  items: StoryItem[]
}

export const SHIPPED = {
  rate: { count: 100, per_milliseconds: SECOND },
  connections: 10,
  messagesPerConnection: 100,
  inFlight: 1,
  readyWindow: 2_000,
  ips: 1,
  isWarming: false,
  poolConnections: null,
}
/** Of all stories, those with a herd, and those with a crowd and nothing else. */
const HERDS = 0.06
const CROWDS = 0.005
/** Milliseconds: some mail is gone within the first, most of it within the second. */
const SOON = [300, 3 * SECOND]
const LARGE_CROWD = 600
export const SMALL_CROWD = 10

export const SENDERS = ['one.test', 'two.test']
export const SMALL_SENDER = 'few.test'
/** The first two share their hosts. */
export const DOMAINS = ['north.test', 'east.test', 'south.test', 'provider.test']
const HABITS: readonly Habit[] = [
  'greylisting',
  'greylisting',
  'deferring',
  'refusing',
  'closing',
  'limiting',
  'unreachable',
  'silent',
  'dropping',
  'losing',
  'slow',
  'stalling',
  'stalling',
]

export function storyOf(seed: number): Story {
  const random = randomSource(seed)
  if (random.next() < CROWDS) return crowdStory(seed, random)
  const settings = settingsOf(random)
  return { seed, settings, items: itemsOf(random, settings) }
}

/** One sender's many messages, and a moment later another's few, to the same place. */
function crowdStory(seed: number, random: RandomSource): Story {
  const settings = { ...settingsOf(random), ...SHIPPED, rate: { count: 20, per_milliseconds: SECOND }, commitTime: 2 }
  const mail = { what: 'accept' as const, domain: random.oneOf(DOMAINS), lifetime: 72 * HOUR, delay: 0 }
  const [many, few] = random.oneOf([
    ['bulk', 'bulk'],
    ['bulk', 'transactional'],
    ['transactional', 'bulk'],
  ] as const)
  return {
    seed,
    settings,
    items: [
      { at: 0, happening: { ...mail, count: LARGE_CROWD, sender: random.oneOf(SENDERS), stream: many } },
      { at: 2 * SECOND, happening: { ...mail, count: SMALL_CROWD, sender: SMALL_SENDER, stream: few } },
    ],
  }
}

export function isCrowdStory({ items }: Story): boolean {
  return (
    items.length === 2 &&
    items.some(({ happening }) => happening.what === 'accept' && happening.sender === SMALL_SENDER)
  )
}

/** Half of all worlds have the limits that the files bring: most servers do. */
function settingsOf(random: RandomSource): Settings {
  const isShipped = random.next() < 0.5
  const some = {
    rate: random.oneOf([
      { count: 100, per_milliseconds: SECOND },
      { count: 20, per_milliseconds: SECOND },
      { count: 3, per_milliseconds: SECOND },
      { count: 60, per_milliseconds: MINUTE },
    ]),
    connections: random.oneOf([1, 2, 5, 10]),
    messagesPerConnection: random.oneOf([1, 5, 100]),
    inFlight: 1,
    readyWindow: random.oneOf([10, 50, 2_000]),
    ips: random.oneOf([1, 2, 3]),
    isWarming: random.next() < 0.5,
    poolConnections: random.oneOf([null, null, 2]),
  }
  return {
    ...(isShipped ? SHIPPED : some),
    threads: random.oneOf([1, 2]),
    threadDelay: random.oneOf([0.1, 0.1, 1, 10]),
    commitTime: random.oneOf([0.2, 2, 5, 30]),
    turnTime: random.oneOf([0, 0.1, 1]),
    hasWebhook: random.next() < 0.3,
    inFlight: random.oneOf([1, 4, 8]),
  }
}

function itemsOf(random: RandomSource, settings: Settings): StoryItem[] {
  const items: StoryItem[] = []
  const length = random.oneOf([SECOND, 30 * SECOND, 5 * MINUTE, 20 * MINUTE])
  const add = (happening: Happening): void => void items.push({ at: random.integer(length), happening })
  const accepts = 1 + random.integer(4)
  for (let index = 0; index < accepts; index++) add(someMail(random))
  if (random.next() < HERDS) items.push(...someHerd(random, settings))
  const troubles = random.oneOf([0, 1, 2, 3, 4, 6, 8])
  const begun = items.map(({ at }) => at)
  for (let index = 0; index < troubles; index++) {
    const happening = someTrouble(random)
    // Half of them while mail is on its way.
    if (random.next() < 0.5) add(happening)
    else items.push({ at: random.oneOf(begun) + random.integer(random.oneOf(SOON)), happening })
  }
  return items.toSorted((one, other) => one.at - other.at)
}

function someMail(random: RandomSource): Happening {
  return {
    what: 'accept',
    count: random.oneOf([1, 1, 3, 10, 30, 30]),
    domain: random.oneOf(DOMAINS),
    sender: random.oneOf(SENDERS),
    stream: random.oneOf(['transactional', 'bulk']),
    lifetime: random.oneOf([10 * MINUTE, 72 * HOUR, 72 * HOUR, 72 * HOUR]),
    delay: random.oneOf([0, 0, 0, 2 * MINUTE]),
  }
}

/** More mail to one place than its rate lets through at once; it has to wait, and comes due together. */
function someHerd(random: RandomSource, { rate }: Settings): StoryItem[] {
  const domain = random.oneOf(DOMAINS)
  const sender = random.oneOf(SENDERS)
  const duration = random.oneOf([20 * SECOND, MINUTE])
  const habit = random.oneOf<Habit>(['greylisting', 'greylisting', 'deferring', 'unreachable'])
  const gather = random.oneOf<Happening>([
    { what: 'kill', downFor: 3 * MINUTE },
    { what: 'retry-now', share: 1 },
    { what: 'retry-now', share: 1 },
    { what: 'hold', sender, duration: 3 * MINUTE },
  ])
  return [
    { at: 0, happening: { what: 'habit', domain, habit, duration, share: 1 } },
    {
      at: SECOND,
      happening: {
        what: 'accept',
        count: 4 * rate.count,
        domain,
        sender,
        stream: 'bulk',
        lifetime: 72 * HOUR,
        delay: 0,
      },
    },
    { at: duration, happening: gather },
  ]
}

function someTrouble(random: RandomSource): Happening {
  const duration = random.oneOf([SECOND, 20 * SECOND, 2 * MINUTE, 6 * MINUTE])
  const ip = random.integer(3)
  const domain = random.oneOf(DOMAINS)
  const share = random.oneOf([0.1, 0.5, 1, 1])
  switch (random.integer(18)) {
    case 0:
      return { what: 'kill', downFor: random.oneOf([10, SECOND, 2 * MINUTE]) }
    case 1:
      return { what: 'stop', downFor: random.oneOf([10, SECOND]) }
    case 2:
    case 16:
      return { what: 'thread-death' }
    case 3:
      return { what: 'jump', milliseconds: random.oneOf([-HOUR, -MINUTE, 4 * SECOND, MINUTE, HOUR, 26 * HOUR]) }
    case 4:
      return { what: 'disk-full', duration }
    case 5:
      return { what: 'slow-store', duration, milliseconds: random.oneOf([100, 2_000, 20_000]) }
    case 6:
      return { what: 'reload', rateShare: random.oneOf([0.1, 1, 3]), connections: random.oneOf([1, 4, 10]) }
    case 7:
      return { what: 'hold', sender: random.oneOf(SENDERS), duration }
    case 8:
      return { what: 'suspend-ip', ip, duration }
    case 9:
      return { what: 'suspend-provider', ip, duration }
    case 10:
      return { what: 'lose-address', ip, duration }
    case 11:
      return { what: 'move-hosts', domain }
    case 12:
      return { what: 'dns', domain, answer: random.oneOf(['no-answer', 'no-address']), duration }
    case 13:
      return { what: 'cancel', share }
    case 14:
      return { what: 'retry-now', share }
    case 15:
      return { what: 'endpoint', answer: random.oneOf([500, 'silent']), duration }
    default:
      return { what: 'habit', domain, habit: random.oneOf(HABITS), duration, share }
  }
}

/** The times in which servers have their habits. */
export function habitTimes({ items }: Story): HabitTime[] {
  return items.flatMap(({ at, happening }) => {
    if (happening.what !== 'habit') return []
    const { domain, habit, share, duration } = happening
    return [{ site: domain, habit, share, from: at, until: at + duration }]
  })
}

/** When the last of it is over. */
export function faultsEndAt({ items }: Story): number {
  return Math.max(
    0,
    ...items.map(({ at, happening }) => {
      const { duration = 0, downFor = 0 } = { ...happening } as { duration?: number; downFor?: number }
      return at + duration + downFor
    }),
  )
}

/** A line for each thing that happens. */
export function tell({ seed, settings, items }: Story): string {
  const lines = items.map(({ at, happening }) => {
    const { what, ...details } = happening
    const said = Object.entries(details).map(([name, value]) => `${name} ${String(value)}`)
    return `  ${(at / SECOND).toFixed(3).padStart(9)} s  ${what}: ${said.join(', ')}`
  })
  return [`seed ${seed}: ${JSON.stringify(settings)}`, ...lines].join('\n')
}
