/**
 * Which elements are open while html is read from front to back, as far as it matters for what is inside of what.
 * Missing end tags are supplied as a browser does it for paragraphs, list items, table parts, links and formatting
 * (WHATWG HTML, 13.2.4 and 13.2.6.4.7); where tags overlap otherwise, a browser may differ. Every tag costs the same.
 * Never throws.
 */

/** Elements that have no end tag, so that nothing can be inside them. */
const VOID_ELEMENTS = new Set('area base br col embed hr img input link meta source track wbr'.split(' '))
/** Their end tags close nothing: what comes behind them still belongs to the body. */
const NEVER_CLOSED = new Set(['html', 'body'])
/** No end tag but that of a table's part reaches beyond one of these. */
const BOUNDARIES = ['table', 'td', 'th', 'caption', 'template', 'object', 'marquee', 'applet']
const TABLE_PARTS = new Set(['table', 'caption', 'colgroup', 'thead', 'tbody', 'tfoot', 'tr', 'td', 'th'])
/** They go on behind a block that ends around them, and blocks go on behind them. */
const FORMATTING = new Set('a b big code em font i nobr s small strike strong tt u'.split(' '))
/** They end with whatever ends around them. */
const PHRASES = new Set('abbr bdi bdo cite del dfn ins kbd label mark q samp span sub sup time var'.split(' '))
/** Parts of a table end each other only inside the innermost table. */
const TABLE_BOUNDARIES = ['table', 'template']

interface Implied {
  ends: readonly string[]
  within: readonly string[]
}

/** They end a paragraph. */
const BLOCKS = (
  'address article aside blockquote center details dir div dl fieldset figure footer form h1 h2 h3 h4 h5 h6 ' +
  'header hr main menu nav ol p pre section table ul'
).split(' ')
const SECTION_PARTS = ['thead', 'tbody', 'tfoot', 'caption', 'colgroup', 'tr', 'td', 'th']

/** Which open elements a start tag ends, and up to which outer ones. */
const IMPLIED_ENDS: ReadonlyMap<string, Implied> = new Map(
  [
    { tags: BLOCKS, ends: ['p'], within: [...BOUNDARIES, 'button'] },
    { tags: ['li'], ends: ['li', 'p'], within: [...BOUNDARIES, 'ul', 'ol', 'button'] },
    { tags: ['dd', 'dt'], ends: ['dd', 'dt', 'p'], within: [...BOUNDARIES, 'dl', 'button'] },
    { tags: ['a'], ends: ['a'], within: BOUNDARIES },
    { tags: ['td', 'th'], ends: ['td', 'th'], within: TABLE_BOUNDARIES },
    { tags: ['tr'], ends: ['tr', 'td', 'th'], within: TABLE_BOUNDARIES },
    { tags: ['thead', 'tbody', 'tfoot'], ends: SECTION_PARTS, within: TABLE_BOUNDARIES },
  ].flatMap(({ tags, ...implied }) => tags.map((tag): [string, Implied] => [tag, implied])),
)

export type OpenElements = ReturnType<typeof createOpenElements>

export function createOpenElements() {
  const names: string[] = []
  /** For each name where its innermost element stands in `names`; for each element where the next outer one does. */
  const innermost = new Map<string, number>()
  const outer: number[] = []
  /** Where the outermost marking element stands, and its name. */
  let mark: { depth: number; name: string } | undefined

  const depthOf = (name: string): number => innermost.get(name) ?? -1
  const deepest = (among: readonly string[]): number => Math.max(...among.map(depthOf))

  const push = (name: string, marks: boolean): void => {
    if (marks) mark ??= { depth: names.length, name }
    outer.push(depthOf(name))
    innermost.set(name, names.length)
    names.push(name)
  }
  /** Ends the element at `depth` and all inside of it. */
  const end = (depth: number): void => {
    const inside = mark !== undefined && mark.depth > depth ? mark : undefined
    // A block that was opened in formatting stays open.
    const isBlock = inside !== undefined && !FORMATTING.has(inside.name) && !PHRASES.has(inside.name)
    if (isBlock && FORMATTING.has(names[depth] ?? '')) return
    const goesOn =
      inside !== undefined &&
      FORMATTING.has(inside.name) &&
      !names.slice(depth, inside.depth).some((name) => BOUNDARIES.includes(name))
    while (names.length > depth) {
      const name = names.pop()
      if (name !== undefined) innermost.set(name, outer.pop() ?? -1)
    }
    if (mark !== undefined && mark.depth >= depth) mark = undefined
    if (goesOn) push(inside.name, true)
  }
  const endImplied = ({ ends, within }: Implied): void => {
    // Most often there is none.
    if (!ends.some((name) => depthOf(name) >= 0)) return
    const boundary = deepest(within)
    const found = ends.map(depthOf).filter((depth) => depth > boundary)
    if (found.length > 0) end(Math.min(...found))
  }

  return {
    /**
     * A start tag; with `marks`, it and all that is inside of it is marked. Returns whether the element is marked, by
     * itself or by one around it.
     */
    open(name: string, marks: boolean): boolean {
      const implied = IMPLIED_ENDS.get(name)
      const isStray = TABLE_PARTS.has(name) && name !== 'table' && depthOf('table') < 0
      if (implied !== undefined && !isStray) endImplied(implied)
      if (VOID_ELEMENTS.has(name)) return marks || mark !== undefined
      push(name, marks)
      return mark !== undefined
    },
    close(name: string): void {
      const depth = depthOf(name)
      if (depth < 0 || NEVER_CLOSED.has(name)) return
      // Nothing is inside of the innermost one.
      if (depth === names.length - 1 || depth >= deepest(boundariesOf(name))) end(depth)
    },
    isOpen: (name: string): boolean => depthOf(name) >= 0,
    /** Whether what comes now is inside of an element that marks. */
    isMarked: (): boolean => mark !== undefined,
  }
}

function boundariesOf(name: string): readonly string[] {
  if (name === 'template') return []
  return TABLE_PARTS.has(name) ? TABLE_BOUNDARIES : BOUNDARIES
}
