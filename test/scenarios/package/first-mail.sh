# From a bare Debian to the first mail, by our apt repository at a file URL, with DNS and an authority for certificates
# (Pebble) on loopback; then an upgrade. Sourced by `boot`.
host=mail.sternpost-example.com
domain=sternpost-example.com
most_seconds=120

tell_story() {
  open_world
  wrong_signature
  first_mail
  upgrade
}

open_world() {
  say "DNS and authority"
  mkdir "$work/world"
  nsenter --target "$leader" --net sh "$repository/scripts/node" "$here/world.ts" "$work/world" \
    "$machine/etc/sternpost/dns-records.zone" "$host" "$address" > "$work/world.log" 2>&1 &
  helper=$!
  wait_for 60 "the authority" test -s "$work/world/directory" || give_up "$(cat "$work/world.log")"
  install -m 644 -t "$machine/srv" "$work/world/authority.pem" "$work/world/issuer.pem"
  echo 'nameserver 127.0.0.1' > "$machine/etc/resolv.conf"
  cat "$work/world/directory"
  echo
}

# publish WHOSE PACKAGE: the repository is in the machine, signed by that key.
publish() {
  export GNUPGHOME=$work/keys-$1
  if [ ! -e "$GNUPGHOME" ]; then
    mkdir -m 700 "$GNUPGHOME"
    gpg --batch --quiet --passphrase '' --quick-generate-key "$1@sternpost.test" ed25519 sign 2> /dev/null || exit 1
  fi
  "$repository/scripts/build-repository" "$machine/srv/apt" --key "$1@sternpost.test" --package "$2" > /dev/null || exit 1
  gpgconf --kill all
}

wrong_signature() {
  say "a repository that somebody else signed"
  publish ours "$earlier"
  install -D -m 644 -t "$machine/etc/apt/keyrings" "$machine/srv/apt/sternpost.asc"
  echo 'deb [signed-by=/etc/apt/keyrings/sternpost.asc] file:/srv/apt stable main' \
    > "$machine/etc/apt/sources.list.d/sternpost.list"
  publish theirs "$earlier"
  show apt-get update
  check "apt refuses it" [ "$status" != 0 ]
  show apt-get install --yes sternpost
  check "and installs nothing" [ "$status" != 0 ]
  publish ours "$earlier"
}

first_mail() {
  say "two commands to the first mail"
  local begun=$EPOCHREALTIME key directory certificate_flags
  show sh -c 'apt-get update && apt-get install --yes sternpost'
  [ "$status" = 0 ] || give_up "the installation"
  ok "the installation"
  directory=$(cat "$work/world/directory")
  certificate_flags="--acme $directory --acme-ca-file /srv/authority.pem --wait 2m"
  show sternpost setup --yes --hostname $host --domain $domain --operator-email ops@$domain --ip $address $certificate_flags
  [ "$status" = 0 ] || give_up "setup"
  ok "setup"
  key=$(printf %s "$shown" | grep -o 'sk_[0-9A-Za-z_]*' | head -1)
  authorization="Authorization: Bearer $key"
  check "the first mail is accepted, by https with a certificate of the authority" wait_for 60 "acceptance" accepts
  local ended=$EPOCHREALTIME
  local seconds=$(((${ended/./} - ${begun/./}) / 1000000))
  check "within $seconds s, at most $most_seconds" [ "$seconds" -le $most_seconds ]
  check "and delivered" wait_for 60 "delivery" is_delivered
}

accepts() {
  answer=$(inside curl --silent --show-error --cacert /srv/issuer.pem "https://$host/v1/email/send" \
    --header "$authorization" --header 'Content-Type: application/json' \
    --data "{\"to\":\"delivered@simulator.sternpost.test\",\"from\":\"shop@$domain\",\"subject\":\"Hi\",\"text\":\"Hi\"}" 2>&1)
  case $answer in *'"success":true'*) ;; *) return 1 ;; esac
}

is_delivered() {
  local id
  id=$(printf %s "$answer" | grep -o 'msg_[0-9a-z]*')
  case $(inside sternpost message show "$id" --json) in *'"state":"delivered"'*) ;; *) return 1 ;; esac
}

upgrade() {
  say "upgrade from the repository"
  publish ours "$package"
  show sh -c 'apt-get update && apt-get upgrade --yes'
  equal "the upgrade ends with" "$status" 0
  contains "the new version is there" "$(inside dpkg-query --show sternpost)" "$version"
  contains "and runs" "$(inside sternpost status)" "$version"
  check "it takes mail with the same key and certificate" wait_for 60 "acceptance" accepts
}
