/** Names of mailing lists, which are scopes of the suppression list (http/README.md "Suppressions"). Pure. */

/** The scope of every list and of mail that belongs to none. */
export const EVERY_LIST = 'all'

// Lower-case letters, digits, dots, underscores and hyphens; the first one is a letter or a digit.
const LIST_NAME = /^[a-z0-9][a-z0-9._-]{0,63}$/

export const LIST_NAME_RULE =
  'must be 1 to 64 of a-z, 0-9, dot, underscore and hyphen, and begin with a letter or digit'

/** `all` is no list: to leave it would be to leave every one. */
export function isListName(text: string): boolean {
  return LIST_NAME.test(text) && text !== EVERY_LIST
}

export function isScope(text: string): boolean {
  return LIST_NAME.test(text)
}
