/**
 * Tracked links and the pixel in html (content/README.md "Tracking"): found once for a content, then filled in for each
 * recipient by joining pieces. The same html always gives the same numbers, so that a click finds its target again.
 * Filling in throws only for a missing value, which acceptance has ruled out.
 */
import type { Variables } from '../../mail/message.ts'
import { createBodyWriter, fillInto, withFixedLines, type BodyTemplate } from './body-template.ts'
import { textOf, type BodyText } from '../mime/body-text.ts'
import { findLinks, type FoundLink } from './find-links.ts'
import { filledCharacters, hostOf, readLink, targetOf, type Link } from './link-target.ts'
import { maskTemplate, type Template } from '../template/parse-template.ts'
import { isUsableValue, substitute } from '../template/substitute-variables.ts'
import { templateOf } from '../template/template-problems.ts'

/** Html in pieces. */
export interface HtmlTemplate {
  pieces: readonly Piece[]
  /** By number. */
  links: readonly Link[]
}

type Piece = { kind: 'template'; template: BodyTemplate } | LinkPiece | { kind: 'pixel' }

interface LinkPiece {
  kind: 'link'
  linkNumber: number
  /** What stands there when the link is not tracked. */
  original: Template
  /** Around the address that replaces it, where it was written without quotes. */
  addedQuote: '"' | ''
}

export interface FillOptions {
  variables: Variables
  /** The address that leads to link n. */
  linkUrl: (linkNumber: number) => string
  /** null: no pixel. */
  pixelUrl: string | null
  /** The message's own, which is never tracked and stands for `{{unsubscribe_url}}`; null: none. */
  unsubscribeUrl: string | null
  rewritesLinks: boolean
}

/** The placeholder that is filled in unless the recipient has a value of that name (http/README.md "Unsubscribe"). */
export const UNSUBSCRIBE_KEY = 'unsubscribe_url'
const MOST_LINKS = 1_000
/** Of values, in links that are compared with one that was clicked. */
const MOST_COMPARED_CHARACTERS = 100_000

export function instrumentHtml(html: string, hasVariables: boolean): HtmlTemplate {
  const source = maskTemplate(templateOf(html, 'html', hasVariables))
  const { links: found, pixelAt } = findLinks(source)
  const links: Link[] = []
  const numbers = new Map<string, number>()
  /** In the order of the calls; undefined for what is not tracked. */
  const numberOf = (place: FoundLink): number | undefined => {
    const link = readLink(place)
    if (link === undefined) return undefined
    const known = numbers.get(link.identity)
    if (known !== undefined || links.length === MOST_LINKS) return known
    numbers.set(link.identity, links.length)
    return links.push(link) - 1
  }
  const pieces: Piece[] = []
  let position = 0
  const copyUpTo = (end: number): void => {
    if (end > position) pieces.push({ kind: 'template', template: source.slice(position, end) })
    position = end
  }
  const placePixel = (): void => {
    copyUpTo(pixelAt)
    pieces.push({ kind: 'pixel' })
  }
  for (const each of found) {
    const linkNumber = numberOf(each)
    if (linkNumber === undefined) continue
    if (position <= pixelAt && pixelAt < each.start) placePixel()
    const { start, end, quote } = each
    copyUpTo(start)
    pieces.push({ kind: 'link', linkNumber, original: source.slice(start, end), addedQuote: quote === '' ? '"' : '' })
    position = end
  }
  if (position <= pixelAt) placePixel()
  copyUpTo(source.text.length)
  return { pieces, links }
}

/** The same for many messages: see `withFixedLines`. */
export function withFixedHtml({ pieces, links }: HtmlTemplate): HtmlTemplate {
  const fixed = (piece: Piece): Piece =>
    piece.kind === 'template' ? { ...piece, template: withFixedLines(piece.template) } : piece
  return { links, pieces: pieces.map(fixed) }
}

/** The html of one recipient. */
export function fillHtml(template: HtmlTemplate, options: FillOptions): string {
  return textOf(fillHtmlBody(template, options))
}

/** The same on its way into a message. */
export function fillHtmlBody(template: HtmlTemplate, options: FillOptions): BodyText {
  const { pixelUrl, unsubscribeUrl, rewritesLinks } = options
  const variables = withUnsubscribeUrl(options.variables, unsubscribeUrl)
  const urls = rewritesLinks ? linkUrls(template.links, variables, options) : []
  const html = createBodyWriter()
  for (const piece of template.pieces) {
    if (piece.kind === 'template') fillInto(html, piece.template, variables)
    else if (piece.kind === 'link') html.add(filledLink(piece, urls[piece.linkNumber], variables))
    // Clients do not fetch what is hidden, so it is not.
    else if (pixelUrl !== null) html.add(`<img src="${pixelUrl}" width="1" height="1" alt="" style="border:0">`)
  }
  return html.result()
}

/**
 * Where one link of a recipient leads, as in `linkTargets`, and the number of the first link that leads there: two
 * links whose values make them the same are one, unless their values are very long.
 */
export function followedLink(
  { links }: Pick<HtmlTemplate, 'links'>,
  linkNumber: number,
  { variables, unsubscribeUrl }: Pick<FillOptions, 'variables' | 'unsubscribeUrl'>,
): { target: string; linkNumber: number } | undefined {
  const values = withUnsubscribeUrl(variables, unsubscribeUrl)
  const link = links[linkNumber]
  const target = link && targetOf(link, values)?.url
  if (target === undefined) return undefined
  let charactersLeft = MOST_COMPARED_CHARACTERS
  const first = links.slice(0, linkNumber).findIndex((other) => {
    charactersLeft -= filledCharacters(other, values)
    return charactersLeft >= 0 && targetOf(other, values)?.url === target
  })
  return { target, linkNumber: first < 0 ? linkNumber : first }
}

/**
 * Where each link of one recipient leads, by number: the address after substitution with its entities decoded, to which
 * a redirect goes and which webhooks tell. undefined: it is none that is tracked.
 */
export function linkTargets(
  { links }: Pick<HtmlTemplate, 'links'>,
  variables: Variables,
  unsubscribeUrl: string | null,
): (string | undefined)[] {
  const values = withUnsubscribeUrl(variables, unsubscribeUrl)
  return links.map((link) => targetOf(link, values)?.url)
}

/** Where the links lead that are replaced in the html of one recipient, by number. */
export function trackedTargets(template: HtmlTemplate, options: FillOptions): string[] {
  const { variables, unsubscribeUrl, rewritesLinks } = options
  const urls = rewritesLinks ? linkUrls(template.links, withUnsubscribeUrl(variables, unsubscribeUrl), options) : []
  const targets = linkTargets(template, variables, unsubscribeUrl)
  return targets.flatMap((target, linkNumber) => (urls[linkNumber] === undefined ? [] : (target ?? [])))
}

function filledLink({ original, addedQuote }: LinkPiece, url: string | undefined, variables: Variables): string {
  return url === undefined ? substitute(original, variables) : `${addedQuote}${url}${addedQuote}`
}

/** By number, what each link is replaced by in one mail; undefined: it stays as it is. */
function linkUrls(
  links: readonly Link[],
  variables: Variables,
  { linkUrl, unsubscribeUrl }: FillOptions,
): (string | undefined)[] {
  const unsubscribeUrls: unknown[] = [unsubscribeUrl, variables[UNSUBSCRIBE_KEY]]
  let trackingHost: string | undefined
  return links.map((link, linkNumber) => {
    const target = targetOf(link, variables)
    if (target === undefined || unsubscribeUrls.includes(target.url)) return undefined
    const url = linkUrl(linkNumber)
    trackingHost ??= hostOf(url)
    // What leads to the tracking host is ours already.
    return target.host === trackingHost ? undefined : url
  })
}

function withUnsubscribeUrl(variables: Variables, url: string | null): Variables {
  const isGiven = Object.hasOwn(variables, UNSUBSCRIBE_KEY) && isUsableValue(variables[UNSUBSCRIBE_KEY])
  return url === null || isGiven ? variables : { ...variables, [UNSUBSCRIBE_KEY]: url }
}
