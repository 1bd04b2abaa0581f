/**
 * IP addresses: parse, canonical text, class, and CIDR membership. "May be connected to" is "global unicast after
 * unmapping" (network/README.md "Addresses never connected to"). Text that is no address gives undefined or false.
 */
import ipaddr from 'ipaddr.js'

/** The canonical text (`2001:DB8::1` -> `2001:db8::1`, `::ffff:10.0.0.1` -> `10.0.0.1`), or undefined. */
export function canonicalIp(text: string): string | undefined {
  return parseIp(text)?.toString()
}

/**
 * By what limits count a client: its address; of IPv6 the /64 it is in, since one machine commonly has all of those
 * addresses (RFC 4291 §2.5.1). What is no address stays as it is.
 */
export function clientKey(text: string): string {
  const address = parseIp(text)
  if (!(address instanceof ipaddr.IPv6)) return address?.toString() ?? text
  return `${address.parts
    .slice(0, 4)
    .map((part) => part.toString(16))
    .join(':')}::/64`
}

/** 4 or 6, or undefined when the text is no address. */
export function ipFamily(text: string): 4 | 6 | undefined {
  const address = parseIp(text)
  if (address === undefined) return undefined
  return address.kind() === 'ipv4' ? 4 : 6
}

/** The first three bits of all IPv6 that is given out, 2000::/3; the rest, such as `::7f00:1`, has no range in ipaddr.js. */
const GLOBAL_IPV6 = 0b001

/** True for an address of the public internet: not loopback, private, link-local, multicast, translated, reserved. */
export function isPublicUnicast(text: string): boolean {
  const address = parseIp(text)
  if (address?.range() !== 'unicast') return false
  return address instanceof ipaddr.IPv4 || (address.parts[0] ?? 0) >> 13 === GLOBAL_IPV6
}

export function isLoopback(text: string): boolean {
  return parseIp(text)?.range() === 'loopback'
}

/** True when `text` is a network such as `10.0.0.0/8` or `2001:db8::/32`, or a single address. */
export function isCidr(text: string): boolean {
  return parseNetwork(text) !== undefined
}

export function isInNetwork(address: string, network: string): boolean {
  const parsedAddress = parseIp(address)
  const parsedNetwork = parseNetwork(network)
  if (parsedAddress === undefined || parsedNetwork === undefined) return false
  const [base, prefixLength] = parsedNetwork
  return base.kind() === parsedAddress.kind() && parsedAddress.match(base, prefixLength)
}

type Address = ipaddr.IPv4 | ipaddr.IPv6

/** The same few addresses are judged all the time: our own, those of clients on kept connections, those of hosts. */
const parsed = new Map<string, Address | undefined>()
const MOST_PARSED = 1_000
const DIGITS_AND_DOTS = /^[\d.]+$/

function parseIp(text: string): Address | undefined {
  // Most of what is asked about are host names: they are not worth an error inside the parser, nor a place here.
  if (!text.includes(':') && !DIGITS_AND_DOTS.test(text)) return undefined
  if (parsed.has(text)) return parsed.get(text)
  const address = readIp(text)
  if (text.length > MOST_CHARACTERS) return address
  if (parsed.size >= MOST_PARSED) parsed.clear()
  parsed.set(text, address)
  return address
}

/** Of an IPv6 address that ends in an IPv4 one: what is longer is not remembered. */
const MOST_CHARACTERS = 45

/** Only the two plain notations: octal, hexadecimal, short forms and zone ids are no addresses here. */
function readIp(text: string): Address | undefined {
  if (text.includes('%')) return undefined
  if (!text.includes(':') && !ipaddr.IPv4.isValidFourPartDecimal(text)) return undefined
  if (!ipaddr.isValid(text)) return undefined
  const address = ipaddr.parse(text)
  return address instanceof ipaddr.IPv6 && address.isIPv4MappedAddress() ? address.toIPv4Address() : address
}

/** With a prefix an IPv4-mapped address is refused: `::ffff:10.0.0.0/8` would be a part of IPv6 that nobody means. */
function parseNetwork(text: string): [Address, number] | undefined {
  const [start = '', prefix] = text.split('/')
  const address = parseIp(start)
  if (address === undefined) return undefined
  if (prefix === undefined) return [address, address.kind() === 'ipv4' ? 32 : 128]
  const network = ipaddr.isValidCIDR(text) ? ipaddr.parseCIDR(text) : undefined
  return network?.[0].kind() === address.kind() ? network : undefined
}
