/** Reading to the end what comes in pages, each from where the one before ended. Rejects as the reading does. */
export async function* pagesOf<Page extends { next: Position | null }, Position = string>(
  read: (after: Position | null) => Promise<Page>,
): AsyncGenerator<Page, void> {
  let after: Position | null = null
  do {
    const page: Page = await read(after)
    yield page
    after = page.next
  } while (after !== null)
}
