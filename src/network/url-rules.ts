/**
 * What the text of a webhook URL must look like (http/README.md "Webhooks"), before anything is resolved. Pure; never
 * throws.
 *
 * Only the plain form is taken. A URL parser also reads backslashes, missing slashes, line breaks and blanks inside,
 * and two programs that read the same text as two hosts are how such checks are got around.
 */

const MOST_CHARACTERS = 2_048

/** What is wrong, as a phrase behind the field's name, or undefined. */
export function urlProblem(text: string, allowHttp: boolean): string | undefined {
  if (text.length > MOST_CHARACTERS) return `must have at most ${MOST_CHARACTERS} characters`
  // The scheme with both slashes, then the authority: no slash, backslash, query or fragment in it, and not empty.
  const authority = /^(https?):\/\/([^/\\?#]+)/i.exec(text)
  const scheme = authority?.[1]?.toLowerCase()
  if (scheme !== 'https' && !(scheme === 'http' && allowHttp)) {
    return allowHttp ? 'must be an http or https URL' : 'must be an https URL'
  }
  // Blanks, control characters (Cc) and backslashes anywhere.
  if (/[\s\p{Cc}\\]/u.test(text)) return 'must not hold blanks, control characters or backslashes'
  if (authority?.[2]?.includes('@') === true) return 'must not hold a user name or password'
  if (text.includes('#')) return 'must not have a fragment'
  return URL.canParse(text) ? undefined : 'is not a valid URL'
}
