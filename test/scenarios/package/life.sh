# What is told of the package on a booted machine. Sourced by `boot`.
node=/usr/lib/sternpost/node/bin/node
# `kill`, and the manual pages that `systemd-analyze verify` looks for.
packages=$packages,procps,man-db
ports='25 80 443 465 587'

tell_story() {
  newcomer
  unit_is_hardened
  doors_are_held
  reloads
  reports_and_crashes
  hangs
  drains
  goes_away
  upgrades
}

property() { inside systemctl show --property="$1" --value sternpost.service; }
field() { inside "$node" -p "JSON.parse(process.argv[1]).$2" "$1" 2> /dev/null; }
post() { # PATH JSON
  inside curl --silent --show-error --insecure --max-time 30 "https://127.0.0.1$1" \
    --header "Authorization: Bearer $key" --header 'Content-Type: application/json' --data "$2"
}
send_to() { # RECIPIENT MORE
  post /v1/email/send \
    "{\"to\":\"$1@simulator.sternpost.test\",\"from\":\"shop@sandbox.test\",\"subject\":\"Hi\",\"text\":\"Hi\"${2:-}}"
}
id_of() { printf %s "$1" | grep -o 'msg_[0-9a-z]*' | head -1; }
state_of() { field "$(inside sternpost message show "$1" --json 2> /dev/null)" state; }
has_state() { [ "$(state_of "$1")" = "$2" ]; }
is_healthy() {
  inside curl --silent --insecure --fail --max-time 5 --output /dev/null https://127.0.0.1/health
}
is_active() { [ "$(property ActiveState)" = active ]; }
is_new_process() { is_active && [ "$(property MainPID)" != "$1" ] && is_healthy; }
journal() { inside journalctl --unit sternpost --output cat --no-pager; }
# The whole journal is read: who ends early makes the one who writes fail.
log_has() { journal | grep -F "$1" > /dev/null; }

set_up() {
  show sternpost setup --yes --hostname mail.sternpost-example.com --domain sternpost-example.com \
    --operator-email ops@sternpost-example.com --ip $address
}

newcomer() {
  say "a newcomer's path: package, setup, first accepted mail"
  local begun=$EPOCHREALTIME sent id
  show apt-get install --yes --no-install-recommends /packages/new.deb
  equal "the installation ends with" "$status" 0
  equal "the first installation starts nothing" "$(property ActiveState)" inactive
  set_up
  equal "setup ends with" "$status" 0
  is_healthy || give_up "the unit is active and answers"
  ok "the unit is active and answers"
  show sternpost key create --name shop --test --scope send --ip 127.0.0.1 --json --quiet
  key=$(field "$shown" key)
  sent=$(send_to delivered)
  echo "  $sent"
  id=$(id_of "$sent")
  # The key is for 127.0.0.1 alone, which a socket for both families shows as ::ffff:127.0.0.1.
  check "a mail is accepted" [ -n "$id" ]
  local ended=$EPOCHREALTIME
  local seconds=$(((${ended/./} - ${begun/./}) / 1000000))
  check "from the package to the first accepted mail: $seconds s, at most 300" [ "$seconds" -le 300 ]
  check "and it is delivered" wait_for 60 "delivery" has_state "$id" delivered
}

unit_is_hardened() {
  say "the unit"
  show systemctl status sternpost --no-pager --lines 0
  contains "it says how it is" "$(property StatusText)" waiting
  show systemd-analyze verify sternpost.service
  equal "systemd-analyze verify" "$status" 0
  show bash -c 'set -o pipefail; systemd-analyze security --offline=true --threshold=15 --no-pager \
    /usr/lib/systemd/system/sternpost.service | tail -1'
  equal "exposure at most 1.5" "$status" 0
  local main=$(property MainPID)
  equal "capabilities of the process" \
    "$(inside awk '/^Cap(Eff|Bnd|Amb)/ { print $2 }' "/proc/$main/status" | sort -u)" 0000000000000000
  equal "its user" "$(inside stat -c %U "/proc/$main")" sternpost
  equal "the master key stays with root" "$(inside stat -c '%U %a' /etc/sternpost/master.key)" 'root 600'
  equal "the database is private" "$(inside stat -c '%U %a' /var/lib/sternpost)" 'sternpost 700'
  equal "the admin socket is for the group" \
    "$(inside stat -c '%U:%G %a' /run/sternpost/admin.sock)" 'sternpost:sternpost 660'
}

doors_are_held() {
  say "sockets held by systemd"
  show ss --listening --tcp --numeric --processes
  local port
  for port in $ports; do
    check "port $port is held by systemd and served by the process" holds_port "$port"
  done
  inside sh -c "printf '%s\r\n' 'From: shop@sandbox.test' 'Subject: by submission' '' 'Hello.' > /tmp/mail"
  show sh -c "for url in smtp://127.0.0.1:587 smtps://127.0.0.1:465; do
    curl --silent --show-error --insecure --ssl-reqd \$url --user apikey:$key \
    --mail-from shop@sandbox.test --mail-rcpt delivered@simulator.sternpost.test --upload-file /tmp/mail || exit 1; done"
  equal "587 and 465 take a mail" "$status" 0
  show bash -c 'exec 3<>/dev/tcp/127.0.0.1/25; head -1 <&3'
  contains "port 25 greets" "$shown" '220 mail.sternpost-example.com'
}
holds_port() {
  local holders
  holders=$(inside ss --listening --tcp --numeric --processes "sport = :$1")
  case $holders in *"pid=$(property MainPID),"*'"systemd",pid=1,'*) ;; *) return 1 ;; esac
}

reloads() {
  say "reload"
  local main=$(property MainPID)
  inside sh -c 'echo "log: { level: debug }" > /etc/sternpost/sternpost.d/10-test.yaml'
  show sternpost reload --dry-run
  show systemctl reload sternpost
  equal "a good file: systemctl reload" "$status" 0
  show sternpost config diff
  contains "it is in force" "$shown" 'The files say what the server runs with.'
  inside sh -c 'echo "log: { level: loud }" > /etc/sternpost/sternpost.d/10-test.yaml'
  show systemctl reload sternpost
  check "a bad file: systemctl reload fails" [ "$status" != 0 ]
  equal "the same process" "$(property MainPID)" "$main"
  check "runs on" is_healthy
  contains "the reason is in the journal" "$(journal)" 'log.level: '
  inside kill -HUP "$main"
  check "SIGHUP with the bad file is refused" wait_for 20 "refusal" log_has 'configuration not reloaded'
  inside sh -c 'echo "log: { level: info }" > /etc/sternpost/sternpost.d/10-test.yaml'
  inside kill -HUP "$main"
  check "SIGHUP with a good file is taken" wait_for 20 "reload" log_has '"configuration reloaded"'
  equal "still the same process" "$(property MainPID)" "$main"
}

reports_and_crashes() {
  say "SIGQUIT and a crash"
  local main=$(property MainPID)
  inside kill -QUIT "$main"
  check "SIGQUIT writes a report" wait_for 30 "report" log_has '"diagnostic report written"'
  check "which holds no environment" report_is_clean
  equal "and the process goes on" "$(property MainPID)" "$main"
  inside kill -KILL "$main"
  check "after SIGKILL it is started again" wait_for 60 "restart" is_new_process "$main"
}
report_is_clean() {
  inside sh -c 'cd /var/lib/sternpost &&
    grep -q javascriptStack report-*.json && ! grep CREDENTIALS_DIRECTORY report-*.json'
}

hangs() {
  say "watchdog"
  local main begun
  main=$(property MainPID)
  begun=$SECONDS
  inside kill -STOP "$main"
  check "a hung process is killed and started again" wait_for 120 "watchdog" is_new_process "$main"
  echo "  after $((SECONDS - begun)) s; $(journal | grep -i 'watchdog timeout' | tail -1)"
  check "by the watchdog" log_has 'Watchdog timeout'
  check "it takes mail again" accepts
  hang_of_thread
}
accepts() { [ -n "$(id_of "$(send_to delivered)")" ]; }

# One thread alone is stopped by a debugger.
hang_of_thread() {
  if ! command -v python3 > /dev/null; then echo "not shown: a hung thread (needs python3)"; return; fi
  local main begun outer thread name
  for name in store delivery; do
    main=$(property MainPID)
    outer=$(outer_process "$main")
    thread=$(thread_named "$outer" "$name")
    if [ -z "$thread" ]; then bad "the $name thread has a name"; continue; fi
    begun=$SECONDS
    python3 "$here/hold-thread.py" "$thread" &
    local holder=$!
    check "a hung $name thread is noticed" wait_for 120 "watchdog" is_new_process "$main"
    echo "  after $((SECONDS - begun)) s"
    kill "$holder" 2> /dev/null
    wait "$holder" 2> /dev/null
  done
}
# The number of a process of the machine as its host has it.
outer_process() {
  grep -lE "^NSpid:[[:space:]]+[0-9]+[[:space:]]+$1$" /proc/[0-9]*/status 2> /dev/null | head -1 | cut -d/ -f3
}
thread_named() { grep -l "$2" "/proc/$1/task/"*/comm 2> /dev/null | head -1 | cut -d/ -f5; }

drains() {
  say "stop"
  local sent id begun
  # So many restarts in so short a time are too many for systemd; they were on purpose.
  inside systemctl reset-failed sternpost.service
  sent=$(send_to slow)
  id=$(id_of "$sent")
  check "a mail to a receiver that greets after 30 s is accepted" [ -n "$id" ]
  check "it is being sent" wait_for 20 "sending" has_state "$id" sending
  begun=$SECONDS
  show systemctl stop sternpost.service
  echo "  it took $((SECONDS - begun)) s"
  check "the stop waited for the receiver" [ $((SECONDS - begun)) -ge 10 ]
  equal "result" "$(property Result) $(property ExecMainStatus)" 'success 0'
  # The sockets stay open: whoever connects starts it.
  check "a connection to the waiting socket starts it again" wait_for 60 "start" is_healthy
  equal "the mail went out, once" "$(state_of "$id") $(attempts_of "$id")" 'delivered 1'
  begun=$SECONDS
  inside systemctl --no-block restart sternpost.service
  check "who asks during a restart waits, and is answered" wait_in_restart
}
attempts_of() { field "$(inside sternpost message show "$1" --json)" attempts.length; }
wait_in_restart() {
  local _
  for _ in $(seq 20); do
    inside curl --silent --insecure --max-time 60 --output /dev/null https://127.0.0.1/health || return 1
    sleep 0.1
  done
}

goes_away() {
  say "remove and purge"
  show apt-get remove --yes sternpost
  equal "removal" "$status" 0
  equal "nothing listens any more" "$(inside ss -Hltn 'sport = :25 or sport = :443' | wc -l)" 0
  check "the program is gone" inside test ! -e /usr/bin/sternpost -a ! -e /usr/lib/sternpost/src
  check "configuration and data are kept" inside test -e /etc/sternpost/sternpost.yaml -a -e /etc/sternpost/master.key \
    -a -e /var/lib/sternpost
  show apt-get purge --yes sternpost
  equal "purge" "$status" 0
  contains "it says what it kept" "$shown" 'kept /var/lib/sternpost'
  equal "the key of the data stays with it" "$(inside stat -c '%U %a' /var/lib/sternpost/master.key)" 'root 600'
  check "configuration, cache and user are gone" inside sh -c \
    'test ! -e /etc/sternpost && test ! -e /var/cache/sternpost && ! getent passwd sternpost && ! getent group sternpost'
  equal "the data is kept, for root alone" "$(inside stat -c '%U %a' /var/lib/sternpost)" 'root 700'
  equal "no unit is left behind" "$(inside sh -c 'ls /etc/systemd/system/*.wants | grep -c sternpost')" 0
  inside rm -rf /var/lib/sternpost
}

digest_of_configuration() { inside sh -c 'cd /etc/sternpost && find . -type f | sort | xargs cat | sha256sum'; }

upgrades() {
  say "upgrade from an earlier package"
  local sent id main before
  show apt-get install --yes --no-install-recommends /packages/earlier.deb
  set_up
  equal "setup" "$status" 0
  key=$(field "$(inside sternpost key create --name shop --test --scope send --ip 127.0.0.1 --json --quiet)" key)
  sent=$(send_to delivered ",\"send_at\":$(($(date +%s) + 3600))")
  echo "  $sent"
  id=$(id_of "$sent")
  equal "a mail waits in the queue" "$(state_of "$id")" scheduled
  inside sh -c 'echo "log: { level: debug }" > /etc/sternpost/sternpost.d/20-own.yaml'
  before=$(digest_of_configuration)
  main=$(property MainPID)
  show apt-get install --yes --no-install-recommends /packages/new.deb
  equal "the upgrade" "$status" 0
  check "it was restarted" wait_for 60 "restart" is_new_process "$main"
  show sternpost version
  contains "the new program runs" "$shown" "sternpost $version"
  equal "the queue was kept" "$(state_of "$id")" scheduled
  check "the key works on" accepts
  equal "the configuration was kept" "$(digest_of_configuration)" "$before"
  main=$(property MainPID)
  inside sh -c 'echo "log: { level: loud }" > /etc/sternpost/sternpost.d/20-own.yaml'
  show apt-get install --yes --no-install-recommends --reinstall /packages/new.deb
  equal "an upgrade with a bad configuration ends well" "$status" 0
  contains "and says what to mend" "$shown" 'the old one keeps running'
  contains "and that this does not last" "$shown" 'its files are the new ones already'
  equal "the old process runs on" "$(property MainPID)" "$main"
  check "and answers" is_healthy
  inside rm /etc/sternpost/sternpost.d/20-own.yaml
  raise_schema 1
  show apt-get install --yes --no-install-recommends --reinstall /packages/new.deb
  contains "a version that is older than the database says so" "$shown" 'this program knows versions up to'
  equal "and the one that knows it runs on" "$(property MainPID)" "$main"
  raise_schema -1
}

raise_schema() { # BY
  inside "$node" -e "
    const database = require('/usr/lib/sternpost/node_modules/better-sqlite3')('/var/lib/sternpost/sternpost.db')
    database.pragma('user_version = ' + (database.pragma('user_version', { simple: true }) + ($1)))"
}
