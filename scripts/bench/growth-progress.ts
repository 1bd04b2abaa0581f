/**
 * One line on stderr for each step of a long measurement, with the time since its start: the figures are on stdout.
 */
export type TellProgress = (step: string) => void

export function createProgress(measurement: string): TellProgress {
  const startedAt = performance.now()
  return (step) => {
    const seconds = Math.round((performance.now() - startedAt) / 1_000)
    process.stderr.write(`${measurement}, ${seconds} s: ${step}\n`)
  }
}
