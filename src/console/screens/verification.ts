/**
 * How an app checks a webhook's signature, in five languages: HMAC-SHA256 of the raw body, in constant time. Whatever
 * stands in the header, or when it is missing, the answer is yes or no.
 */
export const VERIFICATION: Readonly<Record<string, string>> = {
  Node: `import { createHmac, timingSafeEqual } from 'node:crypto'

function isOurs(rawBody, header, secret) {
  const expected = createHmac('sha256', secret).update(rawBody).digest()
  const given = Buffer.from(header ?? '', 'hex')
  return given.length === expected.length && timingSafeEqual(given, expected)
}`,
  Python: `import hashlib, hmac

def is_ours(raw_body: bytes, header: str, secret: str) -> bool:
    expected = hmac.new(secret.encode(), raw_body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), (header or "").encode())`,
  PHP: `function isOurs(string $rawBody, ?string $header, string $secret): bool {
    return hash_equals(hash_hmac('sha256', $rawBody, $secret), $header ?? '');
}`,
  Ruby: `require "openssl"

def ours?(raw_body, header, secret)
  expected = OpenSSL::HMAC.hexdigest("SHA256", secret, raw_body)
  OpenSSL.secure_compare(expected, header.to_s)
end`,
  Go: `// Imports crypto/hmac, crypto/sha256 and encoding/hex.
func isOurs(rawBody []byte, header, secret string) bool {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(rawBody)
	given, err := hex.DecodeString(header)
	return err == nil && hmac.Equal(mac.Sum(nil), given)
}`,
}
