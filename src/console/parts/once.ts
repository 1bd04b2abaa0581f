/**
 * Each act once, however often somebody presses its button: a second key, say, would be one that nobody saw.
 */
import { useRef } from './html.ts'
import { run } from './said.ts'

/**
 * What a form does, not again while it is being done; then the form is as it was at first. `once`, for the server, stays
 * the same until the act is known to be done, or the form says something else: whoever presses again because the answer
 * was lost does nothing twice.
 */
export function useForm(
  act: (fields: FormData, once: string) => Promise<string>,
): (event: SubmitEvent) => Promise<void> {
  const isUnderWay = useRef(false)
  const asked = useRef<{ text: string; once: string } | null>(null)
  return async (event) => {
    event.preventDefault()
    if (isUnderWay.current) return
    isUnderWay.current = true
    const form = event.target as HTMLFormElement
    await run(async () => {
      const fields = new FormData(form)
      const text = JSON.stringify([...fields])
      if (asked.current?.text !== text) asked.current = { text, once: `console ${crypto.randomUUID()}` }
      const done = await act(fields, asked.current.once)
      asked.current = null
      form.reset()
      return done
    })
    isUnderWay.current = false
  }
}

/** The second click of a double one, and Enter that is held down; what is plain changes only the view. */
export function ignoreRepeats(): void {
  addEventListener('click', (event) => event.detail > 1 && isAct(event.target) && ignore(event), { capture: true })
  addEventListener(
    'keydown',
    (event) => event.repeat && event.key === 'Enter' && !isText(event.target) && ignore(event),
    { capture: true },
  )
}

const isAct = (target: EventTarget | null): boolean =>
  target instanceof Element && target.closest('button:not(.plain)') !== null

const isText = (target: EventTarget | null): boolean => target instanceof HTMLTextAreaElement

function ignore(event: Event): void {
  event.preventDefault()
  event.stopPropagation()
}
