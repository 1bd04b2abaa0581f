/** Whose session this is, and what it may do: buttons that would be refused are not shown. */
import { signal } from '@preact/signals'

export interface Who {
  name: string
  /** null: logged in with an API key. */
  role: 'owner' | 'operator' | 'reader' | null
  scopes: string[]
  domains: string[]
  /** A server for development: the sandbox. */
  development: boolean
  version: string
}

export const who = signal<Who | null>(null)

export function mayAdminister(): boolean {
  return who.value?.scopes.includes('admin') === true && who.value.domains.length === 0
}

/** A reader looks only. */
export function mayAct(scope: string): boolean {
  const me = who.value
  if (me === null || me.role === 'reader') return false
  return me.scopes.includes('admin') || me.scopes.includes(scope)
}

export function maySee(scope: string): boolean {
  const scopes = who.value?.scopes ?? []
  return scopes.includes('admin') || scopes.includes(scope)
}

export function isOwner(): boolean {
  const me = who.value
  return me !== null && (me.role === 'owner' || (me.role === null && me.scopes.includes('admin')))
}
