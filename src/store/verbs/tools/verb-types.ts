/** The verbs of the interface as the store's thread runs them: with the same arguments, and at once. */
import type { Store } from '../../store.ts'

type AtOnce<Verb> = Verb extends (...input: infer Input) => Promise<infer Result> ? (...input: Input) => Result : never

export type Verb<Name extends keyof Store> = AtOnce<Store[Name]>

/** Those of one noun, of which each is one of the interface. */
export type SomeVerbs = { [Name in keyof Store]?: Verb<Name> }
