/** Waiting with an end. */

/** Undefined: it took longer than so many milliseconds of real time. Rejects as `waiting` does. */
export async function within<Value>(waiting: Promise<Value>, milliseconds: number): Promise<Value | undefined> {
  let timer: NodeJS.Timeout | undefined
  const timeUp = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, milliseconds, undefined)
  })
  try {
    return await Promise.race([waiting, timeUp])
  } finally {
    clearTimeout(timer)
  }
}
