/**
 * The form in which two addresses are compared: the domain in lower case, the local part as it is (http/README.md
 * "Suppressions").
 */
export function comparableAddress(address: string): string {
  const at = address.lastIndexOf('@')
  return address.slice(0, at) + address.slice(at).toLowerCase()
}
