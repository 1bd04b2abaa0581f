/** Whether this browser, at this address, can make and use passkeys: they belong to a host name, never to an IP. */
const IP_ADDRESS = /^[\d.]+$|^\[/

export const canUsePasskeys =
  globalThis.isSecureContext &&
  'PublicKeyCredential' in globalThis &&
  'parseRequestOptionsFromJSON' in PublicKeyCredential &&
  !IP_ADDRESS.test(location.hostname)
