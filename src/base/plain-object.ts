/** Whether something that was read, such as parsed JSON, is an object with named values. Never throws. */
export function isPlainObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
