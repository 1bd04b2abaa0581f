/** htmlparser2's tokenizer over a whole text; what a caller does not ask for is passed over. Linear, never throws. */
import { Tokenizer } from 'htmlparser2'

type Callbacks = ConstructorParameters<typeof Tokenizer>[1]

const nothing = (): void => {}
const NO_CALLBACKS: Callbacks = {
  onattribdata: nothing,
  onattribentity: nothing,
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
}

export function runTokenizer(html: string, callbacks: Partial<Callbacks>): void {
  const tokenizer = new Tokenizer({ decodeEntities: true }, { ...NO_CALLBACKS, ...callbacks })
  tokenizer.write(html)
  tokenizer.end()
}
