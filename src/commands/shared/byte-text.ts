/** Sizes for people: `11.7 MiB`. */
const UNITS = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'] as const
const STEP = 1_024

export function byteText(bytes: number): string {
  const exact = Math.log(Math.max(1, Math.abs(bytes))) / Math.log(STEP)
  const power = Math.min(UNITS.length - 1, Math.floor(exact))
  const value = bytes / STEP ** power
  return `${power === 0 ? value : value.toFixed(1)} ${UNITS[power]}`
}
