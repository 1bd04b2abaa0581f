/**
 * `html`: what screens are written with. A value in a template becomes text or an attribute, never markup: nothing here
 * can turn what a stranger wrote into html.
 */
import htm from 'htm'
import { h, type ComponentChildren, type VNode } from 'preact'

export { render } from 'preact'
export { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks'
export type { ComponentChildren, VNode } from 'preact'

export const html = htm.bind(h) as (strings: TemplateStringsArray, ...values: unknown[]) => VNode

/** What a component takes between its tags. */
export interface WithChildren {
  children?: ComponentChildren
}
