# Lines of JSON {"body": base64, "signature", "secret"} -> "true" or "false" each. After the specification's text alone.
import base64, hashlib, hmac, json, sys

for line in sys.stdin:
    given = json.loads(line)
    expected = hmac.new(given["secret"].encode(), base64.b64decode(given["body"]), hashlib.sha256).hexdigest()
    print("true" if hmac.compare_digest(expected, given["signature"]) else "false")
