/**
 * The value of an html attribute as a browser reads it: character references decoded by the rules for attributes
 * (WHATWG HTML, 13.2.5.73). Linear, never throws.
 */
import { Tokenizer } from 'htmlparser2'

export function decodeAttribute(text: string): string {
  if (!text.includes('&')) return text
  const html = `<a b="${text.replaceAll('"', '&quot;')}">`
  let value = ''
  const nothing = (): void => {}
  const tokenizer = new Tokenizer(
    { decodeEntities: true },
    {
      onattribdata: (start, end) => {
        value += html.slice(start, end)
      },
      onattribentity: (codePoint) => {
        value += String.fromCodePoint(codePoint)
      },
      onattribend: nothing,
      onattribname: nothing,
      oncdata: nothing,
      onclosetag: nothing,
      oncomment: nothing,
      ondeclaration: nothing,
      onend: nothing,
      onopentagend: nothing,
      onopentagname: nothing,
      onprocessinginstruction: nothing,
      onselfclosingtag: nothing,
      ontext: nothing,
      ontextentity: nothing,
    },
  )
  tokenizer.write(html)
  tokenizer.end()
  return value
}
