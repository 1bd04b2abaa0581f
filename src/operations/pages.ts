/** Reading to the end a list that comes in pages. Rejects as the reading does. */
export async function* pagesOf<Page extends { next: string | null }>(
  read: (after: string | null) => Promise<Page>,
): AsyncGenerator<Page> {
  let after: string | null = null
  do {
    const page: Page = await read(after)
    yield page
    after = page.next
  } while (after !== null)
}
