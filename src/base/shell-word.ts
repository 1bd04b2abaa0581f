/** A word of a command line that people copy into a POSIX shell (POSIX.1-2017, XCU 2.2 "Quoting"). Pure. */

// What no shell gives a meaning to, wherever it stands in a word; a tilde, an equals sign and a brace have one in some.
const PLAIN = /^[\w@+:,./-]+$/

/** As it is where a shell takes it as it is, else in single quotes, within which a shell reads nothing. */
export function shellWord(text: string): string {
  return PLAIN.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}
