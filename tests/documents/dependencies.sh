#!/bin/sh
# scripts/install-dependencies on a system without apt-get: it names what is missing, and how to install it.
set -eu
script=$(cd "$(dirname "$0")/../.." && pwd)/scripts/install-dependencies
bin=$(mktemp -d)
trap 'rm -r "$bin"' EXIT
for program in sh sed dirname cat chmod; do ln -s "$(command -v $program)" "$bin/$program"; done

expect() {  # STATUS TEXT: what a run gives
  status=0
  found=$(PATH="$bin" "$bin/sh" "$script" 2>&1) || status=$?
  case "$status $found" in
    "$1 "*"$2"*) ;;
    *) echo "expected status $1 and \"$2\"; found status $status and: $found" && exit 1 ;;
  esac
}

expect 1 "missing: c++ cmake ninja pkg-config nlohmann-json"
expect 1 "your system's package manager"
stub() { cat > "$bin/$1" && chmod +x "$bin/$1"; }
for program in cmake ninja pkg-config; do echo '#!/bin/sh' | stub $program; done
# A compiler that finds every header but libzip's.
printf '#!/bin/sh\ncase "$(cat)" in *zip.h*) exit 1 ;; esac\n' | stub c++
expect 1 "missing: libzip"
echo '#!/bin/sh' | stub dnf
expect 1 "dnf install gcc-c++"
printf '#!/bin/sh\ncat >/dev/null\n' | stub c++
expect 0 ""
