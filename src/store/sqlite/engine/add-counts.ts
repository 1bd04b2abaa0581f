/** Adds counts of one kind to a sum; what is left out is 0. Never throws. */
export function addCounts<Name extends string>(
  sum: Partial<Record<Name, number>>,
  more: Readonly<Partial<Record<Name, number>>>,
  names: readonly Name[],
): void {
  for (const name of names) {
    const count = more[name]
    if (count !== undefined) sum[name] = (sum[name] ?? 0) + count
  }
}
