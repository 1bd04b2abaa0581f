<?php
// As verify.py, with PHP's own functions.
while (($line = fgets(STDIN)) !== false) {
    $given = json_decode($line, true);
    $expected = hash_hmac('sha256', base64_decode($given['body']), $given['secret']);
    echo hash_equals($expected, $given['signature']) ? "true\n" : "false\n";
}
