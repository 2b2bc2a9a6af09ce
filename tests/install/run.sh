#!/bin/sh
# Installs a build to a temporary folder and uses it as another project would: by find_package and by pkg-config.
# Usage: tests/install/run.sh BUILD_FOLDER
set -eu
build=$(cd "${1:?usage: tests/install/run.sh BUILD_FOLDER}" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "install"
cmake --install "$build" --prefix "$work/first" >"$work/log" || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/prefix"  # what was installed must not know where
prefix="$work/prefix"

echo "find_package: the examples, built and run"
cp -r "$root/examples" "$work/examples"
cmake -S "$work/examples" -B "$work/build" -D CMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 ||
  { cat "$work/log"; exit 1; }
cmake --build "$work/build" -j2 >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
ctest --test-dir "$work/build" --output-on-failure --no-tests=error >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }

echo "pkg-config: a program of ten lines"
cat >"$work/program.cpp" <<'PROGRAM'
#include <attn/attn.hpp>
#include <iostream>

int main() {
  attn::Generator rng(123);
  attn::CausalAttention head({.d_in = 3, .d_out = 2}, rng);
  const attn::Tensor z = head.forward(rng.rand({6, 3}));
  std::cout << ATTN_VERSION << " " << z.shape() << "\n";
  return z.shape() == attn::Shape{6, 2} ? 0 : 1;
}
PROGRAM
config=$(find "$prefix" -name attn.pc)
PKG_CONFIG_PATH=$(dirname "$config")
export PKG_CONFIG_PATH
# Words to split: flags.
# shellcheck disable=SC2046
${CXX:-c++} -std=c++20 "$work/program.cpp" -o "$work/program" $(pkg-config --cflags --libs attn)
printed=$(LD_LIBRARY_PATH=$(dirname "$(dirname "$config")") "$work/program")
[ "$printed" = "$(pkg-config --modversion attn) (6, 2)" ] || { echo "printed: $printed"; exit 1; }

if [ -x "$build/attn" ]; then
  echo "the command, where it was installed"
  "$prefix/bin/attn" check >"$work/log" || { cat "$work/log"; exit 1; }
  tail -n 1 "$work/log"
  for file in man/man1/attn.1 man/man1/attn-train.1 bash-completion/completions/attn zsh/site-functions/_attn \
    fish/vendor_completions.d/attn.fish; do
    [ -s "$prefix/share/$file" ] || { echo "share/$file is missing"; exit 1; }
  done
fi
if [ -x "$build/attn" ] && command -v dpkg-deb >/dev/null; then
  echo "a Debian package, unpacked"
  (cd "$work" && cpack --config "$build/CPackConfig.cmake") >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  dpkg-deb -x "$work"/attn_*.deb "$work/unpacked"
  "$work/unpacked/usr/bin/attn" --version
  for file in man/man1/attn.1 bash-completion/completions/attn zsh/vendor-completions/_attn; do
    [ -s "$work/unpacked/usr/share/$file" ] || { echo "share/$file is missing in the package"; exit 1; }
  done
fi
echo "install: ok"
