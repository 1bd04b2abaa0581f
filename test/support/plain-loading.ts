/**
 * Loaded before tap's own preparations, which each test process and each thread in it would run: they put themselves
 * between Node and every file it loads, to count coverage and to replace modules. No test here asks for either, and it
 * takes half as long again as the tests themselves.
 */
import { registerHooks } from 'node:module'

const PREPARATION = /\/node_modules\/@tapjs\/(typescript|mock|processinfo)\/dist\/esm\/import\.mjs$/

const hooks = registerHooks({
  resolve(specifier, context, nextResolve) {
    if (PREPARATION.test(specifier)) return { url: 'data:text/javascript,', shortCircuit: true }
    // They come first: what follows is the program.
    hooks.deregister()
    return nextResolve(specifier, context)
  },
})
