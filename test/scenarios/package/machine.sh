# A booted Debian root: making it, starting it, running commands in it, ending it. Sourced by `boot`.
passed=0 failed=0
machine= leader= group=
# Of a server on the internet; nobody else is in this network.
address=20.30.40.50

say() { printf '\n=== %s\n' "$1"; }
ok() { passed=$((passed + 1)); echo "ok - $1"; }
bad() { failed=$((failed + 1)); echo "FAILED - $1"; }
# check WHAT COMMAND...: the command decides.
check() { local what=$1; shift; if "$@"; then ok "$what"; else bad "$what"; fi; }
equal() { if [ "$2" = "$3" ]; then ok "$1: $2"; else bad "$1: \"$2\", expected \"$3\""; fi; }
contains() { case $2 in *"$3"*) ok "$1" ;; *) bad "$1: no \"$3\" in: $2" ;; esac; }

# The root of a small Debian server, made once.
prepare_root() {
  # Another list of packages is another root.
  base=$cache/root-$release-$(printf %s "$packages" | md5sum | cut -c1-8)
  if [ ! -e "$base" ]; then
    say "making a Debian root, once ($base)"
    rm -rf "$base.new"
    mmdebstrap --quiet --variant=apt --include="$packages" "$release" "$base.new" > "$base.log" 2>&1 ||
      { tail -5 "$base.log" >&2; impossible "mmdebstrap failed, see $base.log"; }
    # No mirror can be reached from inside.
    rm -f "$base.new/etc/apt/sources.list"
    echo '127.0.0.1 localhost' > "$base.new/etc/hosts"
    mv "$base.new" "$base"
  fi
  machine=$(mktemp -d "$cache/machine-XXXXXX")
  cp -a --reflink=auto "$base/." "$machine/"
}

prepare_packages() {
  work=$(mktemp -d "$cache/packages-XXXXXX")
  if [ -z "$package" ]; then
    say "building the package of this tree"
    package=$("$repository/scripts/build-deb" --fast --output "$work") || exit 1
  fi
  mkdir "$work/earlier"
  if [ -n "$from_commit" ]; then
    say "building the earlier package of commit $from_commit"
    mkdir "$work/source"
    git -C "$repository" archive "$from_commit" | tar -x -C "$work/source" || exit 1
    [ -e "$work/source/scripts/build-deb" ] ||
      { echo "boot: commit $from_commit has no scripts/build-deb" >&2; exit 64; }
    earlier=$("$work/source/scripts/build-deb" --fast --version 0.0.9 --output "$work/earlier") || exit 1
  elif [ -z "$earlier" ]; then
    say "building the earlier package of this same tree, with the version 0.0.9 (no --from-commit was given)"
    earlier=$("$repository/scripts/build-deb" --fast --version 0.0.9 --output "$work/earlier") || exit 1
  fi
  version=$(dpkg-deb --field "$package" Version)
  mkdir -p "$machine/packages"
  cp "$package" "$machine/packages/new.deb"
  cp "$earlier" "$machine/packages/earlier.deb"
  echo "new: $version, earlier: $(dpkg-deb --field "$earlier" Version)"
}

# systemd wants a control group of its own. Where the host has the old layout, the new one is mounted in its place, in
# this mount namespace alone.
enter_group() {
  if [ "$(stat -f -c %T /sys/fs/cgroup)" != cgroup2fs ]; then
    umount -R /sys/fs/cgroup || impossible "the control groups of the host cannot be taken out of the way"
    mount -t cgroup2 cgroup2 /sys/fs/cgroup || impossible "the kernel has no control groups of version 2"
  fi
  group=/sys/fs/cgroup/sternpost-boot-$$
  mkdir "$group" || impossible "no control group can be made"
}

start_machine() {
  say "booting"
  enter_group
  (
    echo "$BASHPID" > "$group/cgroup.procs"
    exec env SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 systemd-nspawn --quiet --boot --directory="$machine" --private-network \
      --register=no --keep-unit --machine="sternpost-$$" --hostname=mail --console=pipe
  ) < /dev/null > "$work/console.log" 2>&1 &
  nspawn=$!
  wait_for 60 "the first process" find_leader ||
    impossible "systemd-nspawn did not start: $(tail -3 "$work/console.log")"
  wait_for 120 "the system" system_is_up || impossible "the system did not come up: $(inside systemctl --failed)"
  inside ip address add $address/32 dev lo
  echo "booted: Debian $(inside cat /etc/debian_version), $(inside systemctl --version | head -1)," \
    "$(inside systemctl is-system-running)"
}

find_leader() {
  kill -0 "$nspawn" 2> /dev/null || return 1
  leader=$(cat "/proc/$nspawn/task/$nspawn/children" 2> /dev/null | tr -d ' ')
  [ -n "$leader" ] && [ "$(cat "/proc/$leader/comm")" = systemd ]
}

system_is_up() {
  case $(inside systemctl is-system-running 2> /dev/null) in running | degraded) ;; *) return 1 ;; esac
}

# Runs a command in the machine.
inside() {
  nsenter --target "$leader" --mount --uts --ipc --net --pid --cgroup -- env -i HOME=/root LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@" < /dev/null
}

# The same, shown with what it prints; what it printed is in $shown, how it ended in $status.
show() {
  printf '$ %s\n' "$*"
  shown=$(inside "$@" 2>&1)
  status=$?
  [ -z "$shown" ] || printf '%s\n' "$shown" | sed 's/^/  /'
  return 0
}

# What follows would show nothing.
give_up() { bad "$1"; inside journalctl --no-pager --lines 40 >&2; summary; }

# wait_for SECONDS WHAT COMMAND...
wait_for() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || { echo "not in time: $what"; return 1; }
    sleep 0.2
  done
}

end_machine() {
  trap '' HUP INT TERM
  [ -z "${helper:-}" ] || { kill -TERM "$helper"; wait "$helper" 2> /dev/null; }
  if [ -n "${nspawn:-}" ]; then
    # An orderly shutdown of the machine, then none.
    kill -TERM "$nspawn" 2> /dev/null
    for _ in $(seq 100); do kill -0 "$nspawn" 2> /dev/null || break; sleep 0.1; done
    [ -z "$leader" ] || kill -KILL "$leader" 2> /dev/null
    kill -KILL "$nspawn" 2> /dev/null
    wait "$nspawn" 2> /dev/null
  fi
  if [ -n "$group" ]; then
    for _ in $(seq 50); do
      find "$group" -depth -type d -exec rmdir {} + 2> /dev/null
      [ -d "$group" ] || break
      sleep 0.1
    done
  fi
  [ -n "$keep" ] || rm -rf "${machine:-}" "${work:-}"
}

summary() {
  printf '\n%s passed, %s failed\n' "$passed" "$failed"
  [ "$failed" = 0 ] || exit 1
}
