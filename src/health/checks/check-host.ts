/**
 * The machine: free space and inodes, the time, who can read the keys (health/README.md "Checks": disk, clock,
 * secrets). Never throws: what cannot be looked at is skipped, or is the finding.
 */
import { execFile } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { readdir, stat, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { SECOND } from '../../base/clock.ts'
import { errorCode, errorText } from '../../base/errors.ts'
import { shellWord } from '../../base/shell-word.ts'
import { checkOf, byteText, type HealthFinding } from './check.ts'

const DISK = checkOf('disk', 'On a full disk no mail is accepted, and in the end none is sent.')
const CLOCK = checkOf('clock', 'Signatures, retries and warmup days go by the clock of this machine.')
const SECRETS = checkOf('secrets', 'Whoever reads the master key can forge links and read stored keys.')

/** Of the free ones. */
const LEAST_INODE_SHARE = 0.05
const FEW_DAYS = 7

export const checkDisk = DISK.anywhere(async ({ configuration, server }) => {
  const { data_dir: folder, storage } = configuration.server
  const space = await statfs(folder).catch(errorText)
  if (typeof space === 'string') return [DISK.fail(folder, `it cannot be looked at: ${space}`, `ls -ld ${folder}`)]
  const { bavail, bsize, files, ffree } = space
  const free = bavail * bsize
  const findings = [spaceOf(folder, free, storage)]
  if (files > 0 && ffree / files < LEAST_INODE_SHARE) {
    const fix = 'find what has so many files: du --inodes -x / | sort -n | tail'
    findings.push(DISK.warn(folder, `${ffree} of ${files} inodes are free`, fix))
  }
  // PostgreSQL grows on the disk of its server.
  const figures = storage.engine === 'sqlite' ? await server?.database() : undefined
  if (figures !== undefined && figures.growthPerDay !== null && figures.growthPerDay > 0) {
    const days = Math.floor((free - storage.min_free_accept) / figures.growthPerDay)
    const seen = `the database grows by ${byteText(figures.growthPerDay)} a day: ${days} days are left`
    if (days < FEW_DAYS) findings.push(DISK.warn(folder, seen, LOWER_RETENTION))
  }
  return findings
})

const LOWER_RETENTION =
  'lower retention.content and retention.transcripts in sternpost.yaml, or set retention.budget; sternpost reload'

interface Marks {
  min_free_accept: number
  min_free_deliver: number
}

function spaceOf(folder: string, free: number, { min_free_accept: least, min_free_deliver }: Marks): HealthFinding {
  const seen = `${byteText(free)} are free`
  const space = `free space on the disk of ${folder} (du -xh ${shellWord(folder)})`
  if (free < min_free_deliver) {
    const stopped = `${seen}, less than storage.min_free_deliver (${byteText(min_free_deliver)}): no delivery begins`
    return DISK.fail(folder, stopped, `${space}; a reload is refused until then`)
  }
  const fix = `${space}, or: ${LOWER_RETENTION}`
  if (free < least) return DISK.fail(folder, `${seen}, less than storage.min_free_accept (${byteText(least)})`, fix)
  if (free < 2 * least) return DISK.warn(folder, `${seen}, less than twice storage.min_free_accept`, fix)
  return DISK.ok(folder, seen)
}

const TIME_SERVICE = { address: '127.0.0.1', port: 123 }
const ANSWER_MILLISECONDS = SECOND
const WARN_OFFSET = 2 * SECOND
const FAIL_OFFSET = 60 * SECOND

export const checkClock = CLOCK.anywhere(async ({ clock, server }) => {
  if (server?.isClockSteady() === false) return [CLOCK.warn(null, DOUBTED, `date; ${SET_CLOCK}`)]
  const before = clock.now()
  const time = await askTimeService()
  const offset = time === null ? null : offsetOf(time - (before + clock.now()) / 2)
  if (offset !== null && offset.result !== 'ok') return [offset]
  const isSet = await isClockSet()
  if (isSet === null && offset !== null) return [offset]
  if (isSet === null) return [CLOCK.skip(null, 'no time service answers at 127.0.0.1, and timedatectl does not say')]
  if (isSet) return [CLOCK.ok(null, 'the system says that it is synchronised')]
  return [CLOCK.warn(null, 'the system says that nothing sets the clock', SET_CLOCK)]
})

const DOUBTED =
  'it jumped, or is over 30 days from the newest mail: no message expires and nothing is removed until it was steady'
const SET_CLOCK = 'timedatectl set-ntp true (systemd-timesyncd), then: timedatectl'

/** By the kernel's own word, whatever daemon sets it; null: there is no systemd to ask. */
function isClockSet(): Promise<boolean | null> {
  return new Promise((resolve) => {
    const words = ['show', '--property=NTPSynchronized', '--value']
    execFile('timedatectl', words, { timeout: ANSWER_MILLISECONDS }, (error, stdout) => {
      const answer = stdout.trim()
      resolve(error !== null || (answer !== 'yes' && answer !== 'no') ? null : answer === 'yes')
    })
  })
}

function offsetOf(milliseconds: number): HealthFinding {
  const seconds = (Math.abs(milliseconds) / SECOND).toFixed(1)
  const seen = `${seconds} s ${milliseconds > 0 ? 'behind' : 'ahead of'} the time service of this machine`
  if (Math.abs(milliseconds) > FAIL_OFFSET) return CLOCK.fail(null, seen, SET_CLOCK)
  if (Math.abs(milliseconds) > WARN_OFFSET) return CLOCK.warn(null, seen, SET_CLOCK)
  return CLOCK.ok(null, seen)
}

const PACKET_BYTES = 48
/** Client, version 4 (RFC 4330 §4). */
const CLIENT_REQUEST = 0x23
/** Seconds from 1900 to 1970. */
const NTP_EPOCH_SECONDS = 2_208_988_800
const TRANSMIT_AT = 40

/** Unix milliseconds by SNTP; null: nobody answers, or who answers does not know the time itself. */
function askTimeService(): Promise<number | null> {
  return new Promise((resolve) => {
    const socket = createSocket('udp4')
    const end = (time: number | null): void => {
      clearTimeout(timer)
      socket.close()
      resolve(time)
    }
    const timer = setTimeout(() => end(null), ANSWER_MILLISECONDS)
    socket.once('error', () => end(null))
    socket.once('message', (message) => {
      if (message.length < PACKET_BYTES || !knowsTime(message)) return end(null)
      const seconds = message.readUInt32BE(TRANSMIT_AT) - NTP_EPOCH_SECONDS
      end((seconds + message.readUInt32BE(TRANSMIT_AT + 4) / 2 ** 32) * SECOND)
    })
    socket.connect(TIME_SERVICE.port, TIME_SERVICE.address, () => {
      const request = Buffer.alloc(PACKET_BYTES)
      request[0] = CLIENT_REQUEST
      socket.send(request)
    })
  })
}

const LEAP_ALARM = 3
const LAST_STRATUM = 15

/** Neither the alarm of a clock that was never set, nor a stratum beyond the last one (RFC 4330 §4). */
function knowsTime(message: Buffer): boolean {
  const [first = 0, stratum = 0] = message
  return first >> 6 !== LEAP_ALARM && stratum >= 1 && stratum <= LAST_STRATUM
}

const OTHERS = 0o007
const OF_GROUP = 0o070
const MODE_BITS = 0o777

const MASTER_KEY = 'master.key'

export const checkSecrets = SECRETS.outside(async ({ folder, configuration }) => {
  if (folder === null) return [SECRETS.skip(null, 'the folder of the configuration is not known')]
  const names = await readdir(folder).catch(() => [])
  // Also copies of the master key that an editor or a backup left beside it.
  const found = [MASTER_KEY, ...names.filter((name) => name.startsWith(MASTER_KEY))].map((name) => join(folder, name))
  const keys = configuration.server.tls.certificates.map(({ key_file: file }) => file)
  return Promise.all([...new Set([...found, ...keys])].map((file) => secrecyOf(file, folder)))
})

/** The group of the service, which the folder has too, may read. */
async function secrecyOf(file: string, folder: string): Promise<HealthFinding> {
  try {
    const [{ mode, gid }, ofFolder] = await Promise.all([stat(file), stat(folder)])
    const isOurGroup = gid === ofFolder.gid || gid === 0
    const octal = (mode & MODE_BITS).toString(8).padStart(4, '0')
    if ((mode & (isOurGroup ? OTHERS : OTHERS | OF_GROUP)) === 0) return SECRETS.ok(file, `its mode is ${octal}`)
    return SECRETS.fail(file, `its mode is ${octal}: others can read it`, `chmod ${isOurGroup ? 'o=' : 'go='} ${file}`)
  } catch (thrown) {
    if (errorCode(thrown) === 'ENOENT') return SECRETS.skip(file, 'it is not there')
    return SECRETS.skip(file, `it cannot be looked at by this user: ${errorText(thrown)}`)
  }
}
