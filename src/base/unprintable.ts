/** Characters of text from outside that a terminal would obey, and how they are written in their place. Pure. */

/** Control characters, and those that change the direction of the text around them. */
export const UNPRINTABLE = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu

/** As an escape of JSON. */
export function escapeOf(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
}
