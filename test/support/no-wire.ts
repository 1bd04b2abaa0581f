/**
 * Loaded before the program (`--import`): delivery threads answer by themselves, and no socket is opened for mail.
 */
import { registerHooks } from 'node:module'

const STAND_IN = new URL('./wireless-thread.ts', import.meta.url).href

registerHooks({
  resolve(specifier, context, nextResolve) {
    const resolved = nextResolve(specifier, context)
    const isWire = resolved.url.endsWith('/src/delivery/session/delivery-thread.ts')
    return isWire ? { url: STAND_IN, shortCircuit: true } : resolved
  },
})
