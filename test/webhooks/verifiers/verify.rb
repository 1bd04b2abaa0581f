# As verify.py, with Ruby's own library.
require 'base64'
require 'json'
require 'openssl'

$stdin.each_line do |line|
  given = JSON.parse(line)
  expected = OpenSSL::HMAC.hexdigest('SHA256', given['secret'], Base64.decode64(given['body']))
  same = expected.bytesize == given['signature'].bytesize && OpenSSL.fixed_length_secure_compare(expected, given['signature'])
  puts same ? 'true' : 'false'
end
