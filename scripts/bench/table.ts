/**
 * Tables on standard output: columns as wide as they need, the first one to the left, numbers to the right.
 */
export type Cell = string | number | null

/** null is a dash. */
export function printTable(heads: readonly string[], rows: readonly (readonly Cell[])[]): void {
  const lines = [heads, ...rows].map((row) => row.map((cell) => (cell === null ? '-' : String(cell))))
  const widths = heads.map((_, column) => Math.max(...lines.map((line) => (line[column] ?? '').length)))
  for (const line of lines) {
    const cells = line.map((cell, column) => {
      const width = widths[column] ?? 0
      return column === 0 ? cell.padEnd(width) : cell.padStart(width)
    })
    process.stdout.write(`${cells.join('  ').trimEnd()}\n`)
  }
  process.stdout.write('\n')
}

export function print(line: string): void {
  process.stdout.write(`${line}\n`)
}
