# What build-deb, build-image, build-repository and release share. Sourced by them, with `source_root` set: the same words
# and files whoever calls, a time for what is made, a folder that goes when they end.
umask 022
export LC_ALL=C TZ=UTC
unset NODE_OPTIONS NODE_COMPILE_CACHE

# The comment that the script begins with.
usage() { sed -n '2,/^[^#]/s/^#\( \|$\)//p' "$0"; }
fail() { echo "$(basename "$0"): $1" >&2; exit "${2:-1}"; }
misuse() { usage >&2; fail "$1" 64; }
need() { for tool in "$@"; do command -v "$tool" > /dev/null || fail "needs $tool, which is not installed"; done; }
need_key() { gpg --batch --list-secret-keys "$1" > /dev/null 2>&1 || fail "there is no secret key $1 to sign with" 77; }
# folder DIR: its whole path.
folder() { [ -d "$1" ] || fail "there is no folder $1" 74; CDPATH= cd "$1" && pwd; }
# version_of FOLDER
version_of() { sed -n 's/^  "version": "\(.*\)",$/\1/p' "$1/package.json"; }

host_arch=$(dpkg --print-architecture 2> /dev/null || true)
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
  SOURCE_DATE_EPOCH=$(git -C "$source_root" log -1 --format=%ct 2> /dev/null || stat -c %Y "$source_root/package.json")
fi
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$work"
