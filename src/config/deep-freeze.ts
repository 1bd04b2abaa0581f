/**
 * Freezes a value and all it holds, so that no part of the program changes the configuration of another.
 *
 * Bytes stay as they are: JavaScript cannot freeze them.
 */
export function deepFreeze<Value>(value: Value): Value {
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return value
  for (const part of Object.values(value)) deepFreeze(part)
  return Object.freeze(value)
}
