/**
 * The `delivery` section of `sternpost.yaml`: how messages leave (config/README.md "sternpost.yaml", delivery/README.md
 * "The SMTP session").
 */
import { z } from 'zod'
import { DAY, HOUR, MINUTE, SECOND } from '../../base/clock.ts'
import { boolean, choice, count, duration, integer, share } from './field-types.ts'
import { accepted, field, refused, section, shown, type Reading } from './reading.ts'
import { mailAddress, port } from './network-field-types.ts'

/** Which address family is tried first; a pool may say otherwise. */
export const IPV6_CHOICES = [
  'prefer-v4', // IPv6 only where a host has no IPv4 address
  'prefer-v6', // IPv4 only where a host has no IPv6 address
  'off', // IPv4 alone
] as const

/** Floor of encryption; DANE, MTA-STS and a provider block may ask for more. */
export const TLS_CHOICES = [
  'opportunistic', // STARTTLS when offered, plain text when it fails
  'required', // STARTTLS must succeed; the certificate is not checked
] as const

const MOST_THREADS = 16
/** A waiting message tries 16 times within three days, quickly at first (delivery/README.md "Retries"). */
const DEFAULT_RETRY = [1, 5, 15, 30, 60, 120, 240, 240, 240, 360, 360, 360, 480, 480, 480, 480].map(
  (minutes) => minutes * MINUTE,
)

const stream = section({ lifetime: duration({ min: 5 * MINUTE, max: 7 * DAY }).default(72 * HOUR) }).prefault({})

export const deliverySection = section({
  port: port.default(25),
  allow_private_addresses: boolean.default(false),
  threads: field(readThreads).default('auto'),
  connections_max: count.default(1_000),
  addresses_max: integer({ min: 1, max: 100 }).default(20),
  retry: z.array(duration()).min(1).default(DEFAULT_RETRY),
  retry_jitter: share({ max: 0.5 }).default(0.2),
  streams: section({ transactional: stream, bulk: stream }).prefault({}),
  ready_window: count.default(2_000),
  greylist_retry: z
    .array(duration())
    .min(1)
    .default([5 * MINUTE, 15 * MINUTE]),
  uncertain_retry: duration().default(5 * MINUTE),
  lease: duration().default(15 * MINUTE),
  ipv6: choice(IPV6_CHOICES).default('prefer-v4'),
  timeouts: section({
    connect: duration().default(30 * SECOND),
    banner: duration().default(60 * SECOND),
    ehlo: duration().default(60 * SECOND),
    starttls: duration().default(60 * SECOND),
    mail: duration().default(5 * MINUTE),
    rcpt: duration().default(5 * MINUTE),
    data: duration().default(2 * MINUTE),
    final_dot: duration().default(10 * MINUTE),
    quit: duration().default(5 * SECOND),
  }).prefault({}),
  tls: choice(TLS_CHOICES).default('opportunistic'),
  mta_sts: boolean.default(true),
  dane: choice(['auto', 'off']).default('auto'),
  remember_plain: duration({ min: 0 }).default(3 * DAY),
  tls_reports: section({ from: mailAddress.nullable().default(null) }).prefault({}),
  // systemd stops waiting after 90 s (TimeoutStopSec), and sessions after the final dot need the rest.
  drain: duration({ min: 0, max: 60 * SECOND }).default(45 * SECOND),
})

function readThreads(value: unknown): Reading<'auto' | number> {
  if (value === 'auto') return accepted(value)
  const isCount = typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= MOST_THREADS
  if (isCount) return accepted(value)
  return refused(`${shown(value)} is not auto or a number of threads from 1 to ${MOST_THREADS}`)
}
