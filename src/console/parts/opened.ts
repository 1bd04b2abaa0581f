/** What lies above the screen: the list of keys, the finder. */
import { signal } from '@preact/signals'
import type { VNode } from './html.ts'

export const helpIsOpen = signal(false)
/** The finder while it is open. */
export const palette = signal<(() => VNode) | null>(null)
