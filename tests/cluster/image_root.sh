#!/usr/bin/env bash
# Fills the directories from which the Dockerfile makes its two images: programs and every library that they load.
#   OUT/operator   a whole root: trainyard-operator, its libraries with glibc, CA certificates, users
#   OUT/trainer    to be laid over a Debian 12 root: trainyard-launch, trainyard-trainer, trainyard-generate, trainyard, LibTorch with Gloo
#
#   bash tests/cluster/image_root.sh [--bin build/release/bin] [--out build/image] [--accelerator cpu|nccl] [--only operator]
set -euo pipefail

bin=build/release/bin out=build/image accelerator=cpu only=
die() { printf 'image_root: %s\n' "$*" >&2; exit 1; }
while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=$2 ;;
    --out) out=$2 ;;
    --accelerator) accelerator=$2 ;;
    --only) only=$2 ;;
    *) die "unknown argument $1; see the head of this script" ;;
  esac
  shift 2
done
case $accelerator in cpu | nccl) ;; *) die "--accelerator $accelerator: use cpu or nccl" ;; esac

# Paths of the libraries that a program loads, one a line, the loader included.
libraries() {
  local listed
  listed=$(ldd "$1") || die "ldd cannot read $1"
  if grep -q 'not found' <<<"$listed"; then die "$1 misses libraries: $(grep 'not found' <<<"$listed" | xargs)"; fi
  grep -oE '/[^ ]+' <<<"$listed"
}
program() {  # NAME ROOT
  [ -x "$bin/$1" ] || die "$bin/$1 is not there: build it first (cmake --build --preset release)"
  install -D -m 755 "$bin/$1" "$2/usr/local/bin/$1"
  strip "$2/usr/local/bin/$1"
}

mkdir -p "$out"
if [ -z "$only" ] || [ "$only" = operator ]; then
  root=$out/operator
  rm -rf "$root"
  program trainyard-operator "$root"
  while read -r library; do
    install -D -m 755 "$library" "$root$library"
  done < <(libraries "$bin/trainyard-operator")
  install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  printf 'root:x:0:0:root:/:/sbin/nologin\noperator:x:65532:65532:operator:/:/sbin/nologin\n' >"$root/etc/passwd"
  printf 'root:x:0:\noperator:x:65532:\n' >"$root/etc/group"
  printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
fi

if [ -z "$only" ] || [ "$only" = trainer ]; then
  root=$out/trainer
  libs=$root/usr/local/lib/trainyard
  rm -rf "$root"
  mkdir -p "$libs" "$root/etc/ld.so.conf.d"
  echo /usr/local/lib/trainyard >"$root/etc/ld.so.conf.d/trainyard.conf"
  for name in trainyard-launch trainyard-trainer trainyard-generate trainyard; do
    program "$name" "$root"
    while read -r library; do
      case ${library##*/} in
        # glibc is the base's own: two of them in one process do not work.
        ld-linux* | libc.so* | libm.so* | libutil.so* | libdl.so* | librt.so* | libpthread.so* | libresolv.so* | libmvec.so*) ;;
        *) install -m 755 "$library" "$libs/" ;;
      esac
    done < <(libraries "$bin/$name")
  done
  # Built without the crates, there is nothing to tell.
  [ ! -f "$bin/crates-licenses.txt" ] ||
    install -D -m 644 "$bin/crates-licenses.txt" "$root/usr/local/share/doc/trainyard/crates-licenses.txt"
  if [ "$accelerator" = nccl ]; then
    wheel=$(mktemp -d)
    trap 'rm -rf "$wheel"' EXIT
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
      --platform manylinux_2_18_x86_64 --dest "$wheel" \
      --requirement <(echo 'nvidia-nccl-cu13==2.28.9 --hash=sha256:e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42') || die "NCCL could not be fetched"
    python3 -m zipfile -e "$wheel"/*.whl "$wheel/unpacked"
    install -m 755 "$wheel/unpacked/nvidia/nccl/lib/libnccl.so.2" "$libs/"
  fi
fi
