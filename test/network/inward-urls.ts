/**
 * URLs that lead inwards, in every notation known for it (hardening.md 4.1): none of them may be connected to.
 */

export const PUBLIC = '8.8.8.8'

/** Everything between the slashes and the port. */
export const INWARD_LITERALS = [
  // Loopback in every notation a URL parser knows.
  '127.0.0.1', '127.0.0.2', '127.255.255.254', '127.1', '127.0.1', '2130706433', '0x7f000001', '0x7f.1', '0x7f.0.0.1',
  '0X7F.0x0.0x0.0x1', '0177.0.0.1', '0177.1', '017700000001', '127.0.0.1.', '127.1.', '127.0.0.01', '１２７.0.0.1',
  '127。0。0。1', '127．0．0．1', '①②⑦.⓪.⓪.①', '%31%32%37.0.0.1', '0', '0.0.0.0', '00.0.0.0', '0x0',
  '[::1]', '[0:0:0:0:0:0:0:1]', '[0000::0001]', '[::]', '[::127.0.0.1]', '[::7f00:1]',
  // IPv4 inside IPv6: mapped, translated, tunnelled.
  '[::ffff:127.0.0.1]', '[::ffff:7f00:1]', '[::FFFF:7F00:0001]', '[0:0:0:0:0:ffff:127.0.0.1]', '[::ffff:0:7f00:1]',
  '[64:ff9b::127.0.0.1]', '[64:ff9b::7f00:1]', '[64:ff9b:1::7f00:1]', '[2002:7f00:1::]', '[2001::7f00:1]',
  // Private, shared, link-local, documentation, benchmarking, multicast, reserved.
  '10.0.0.1', '100.64.0.1', '169.254.169.254', '0xa9fea9fe', '2852039166', '0251.0376.0251.0376',
  '[::ffff:169.254.169.254]', '172.16.0.1', '172.31.255.255', '192.0.0.1', '192.0.2.1', '192.88.99.1', '192.168.0.1',
  '198.18.0.1', '198.51.100.1', '203.0.113.1', '224.0.0.1', '240.0.0.1', '255.255.255.255', '[fc00::1]', '[fd00::1]',
  '[fd00:ec2::254]', '[fe80::1]', '[fec0::1]', '[ff02::1]', '[100::1]', '[2001:db8::1]', '[3fff::1]',
]

export const INWARD_NAMES: Record<string, string[]> = {
  localhost: ['127.0.0.1', '::1'],
  'localhost.': ['127.0.0.1'],
  'metadata.google.internal': ['169.254.169.254'],
  'private.test': ['10.0.0.1'],
  'loopback.test': ['127.0.0.1'],
  'mixed.test': [PUBLIC, '127.0.0.1'],
  'mixed-late.test': [PUBLIC, '2606:4700::1', '::1'],
  'alias-to-loopback.test': ['127.0.0.1'],
  '127.0.0.1.nip.test': ['127.0.0.1'],
  'mapped.test': ['::ffff:127.0.0.1'],
  'translated.test': ['64:ff9b::7f00:1'],
  'zero.test': ['0.0.0.0'],
  'zone.test': ['fe80::1%lo'],
  'nonsense.test': ['not an address'],
  'xn--lcl-hna.test': ['127.0.0.1'],
}

/** `PORT` stands for the canary's. What is wrong with the text itself is refused whoever it leads to. */
export const INWARD_TEXTS = [
  'http://good.test@127.0.0.1:PORT/', 'http://127.0.0.1:PORT@good.test/', 'http://user:secret@good.test/',
  'http://@127.0.0.1:PORT/', 'http://good.test\\@127.0.0.1:PORT/', 'http:\\\\127.0.0.1:PORT/', 'http:/127.0.0.1:PORT/',
  'http:127.0.0.1:PORT/', '//127.0.0.1:PORT/', ' http://127.0.0.1:PORT/', 'http://127.0.0.1:PORT/\t',
  'ht\ntp://127.0.0.1:PORT/', 'http://127.0.0.1:PORT/ x', 'http://127.0.0.1:PORT#@good.test/', 'http://good.test/#part',
  'http://good.test/#', 'http://[fe80::1%25lo]:PORT/', 'http://[::1%25lo]:PORT/', 'http://[::1%lo]:PORT/', 'http://',
  '', 'http://:PORT/', 'http:///127.0.0.1:PORT/', 'http://1.2.3.4.5/', 'http://256.1.1.1/',
  'http://127.0.0.1%00.good.test/', 'http://good.test:99999/', 'ftp://127.0.0.1:PORT/', 'file:///etc/passwd',
  'gopher://127.0.0.1:PORT/', 'javascript:alert(1)', 'data:text/plain,x', 'unix:/run/sternpost.sock', 'not a URL',
  `http://good.test/${'x'.repeat(2048)}`,
]
