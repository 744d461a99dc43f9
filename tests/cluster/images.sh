#!/usr/bin/env bash
# The images of the tests on real nodes, as docker-archives: ours from the Dockerfile (BUILD=prebuilt, so that nothing is
# compiled twice) and one that stands for a user's own, with a shell and Python. No registry is needed: the base is made by
# debootstrap, once. Named by content, so an image that is there is taken as it is, and no node keeps an old one.
#
#   bash tests/cluster/images.sh [--bin build/release/bin] [--only operator|trainer|user]
# Prints one line per image: OPERATOR_IMAGE=localhost/trainyard-operator:<hash> and OPERATOR_ARCHIVE=<file>, likewise
# TRAINER_ and USER_. Exits with 77 and says why where images cannot be built.
#
#   TRAINYARD_CACHE   where base, storage of buildah and archives are (default: ~/.cache/trainyard)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

bin=$repository/build/release/bin only=
while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=$2 ;;
    --only) only=$2 ;;
    *) die "unknown argument $1; see the head of this script" ;;
  esac
  shift 2
done
[ "$(id -u)" = 0 ] || cannot "images are built as root"
for tool in buildah debootstrap; do
  command -v "$tool" >/dev/null || cannot "$tool is not installed: run tests/setup.sh"
done

images=$cache/images
mkdir -p "$images"
exec 9>"$images/.lock"
flock 9  # a second run waits and finds the work done
work=$(mktemp -d "$images/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
build() { buildah --root "$images/storage" --runroot "$images/run" --storage-driver vfs "$@" 9>&-; }
hash_of() { tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$1" -c . | sha256sum | cut -c1-12; }
# Written aside and moved into place, so that an archive that exists is whole. Older ones of the same name go, unless a
# run of now may still import them.
archive() {  # IMAGE NAME TAG
  rm -f "$work/archive.tar"
  build push --quiet "$1" "docker-archive:$work/archive.tar:localhost/trainyard-$2:$3" >&2
  find "$images" -maxdepth 1 -name "$2-*.tar" -mmin +120 -delete
  mv "$work/archive.tar" "$images/$2-$3.tar"
}
announce() {  # NAME TAG
  printf '%s_IMAGE=localhost/trainyard-%s:%s\n%s_ARCHIVE=%s\n' "${1^^}" "$1" "$2" "${1^^}" "$images/$1-$2.tar"
}

# ---- the base: Debian 12 with Python, its caches and manuals left out ------------------------------------------------
packages=ca-certificates,libstdc++6,python3-minimal,libpython3-stdlib
base_tag=bookworm-$(printf '%s' "$packages" | sha256sum | cut -c1-8)
base=localhost/trainyard-base:$base_tag
if [ ! -s "$images/base-$base_tag.tar" ]; then
  say "making a base image with debootstrap" >&2
  debootstrap --variant=minbase --include="$packages" bookworm "$work/base" >"$work/debootstrap.log" 2>&1 || {
    tail -5 "$work/debootstrap.log" >&2
    cannot "debootstrap could not make a base image: is a Debian mirror reachable?"
  }
  rm -rf "$work/base"/{var/cache/apt,var/lib/apt/lists,usr/share/{doc,man,locale,info}}/* "$work/base"/dev/*
  tar --numeric-owner -C "$work/base" -cf "$work/base.tar" .
  rm -rf "$work/base"
  mv "$work/base.tar" "$images/base-$base_tag.tar"
fi
if ! build inspect --type image "$base" >/dev/null 2>&1; then
  mkdir "$work/context"
  ln "$images/base-$base_tag.tar" "$work/context/base.tar"
  printf 'FROM scratch\nADD base.tar /\nCMD ["/bin/sh"]\n' >"$work/context/Dockerfile"
  build bud --quiet --isolation chroot --tag "$base" "$work/context" >&2
  rm -rf "$work/context"
fi

# ---- a user's own image ----------------------------------------------------------------------------------------------
if [ -z "$only" ] || [ "$only" = user ]; then
  [ -s "$images/user-$base_tag.tar" ] || archive "$base" user "$base_tag"
  announce user "$base_tag"
fi

# ---- ours ------------------------------------------------------------------------------------------------------------
for target in operator trainer; do
  [ -z "$only" ] || [ "$only" = "$target" ] || continue
  bash "$here/image_root.sh" --bin "$bin" --out "$work/$target/build/image" --only "$target" >&2
  cp "$repository/Dockerfile" "$repository/.dockerignore" "$work/$target"
  tag=$(printf '%s' "$base_tag" "$(hash_of "$work/$target")" | sha256sum | cut -c1-12)
  if [ ! -s "$images/$target-$tag.tar" ]; then
    say "building the $target image" >&2
    mkdir -p "$work/$target/build/image"/{operator,trainer}  # the stage copies both
    build bud --quiet --isolation chroot --build-arg BASE="$base" --build-arg BUILD=prebuilt --target "$target" \
      --tag "localhost/trainyard-$target:$tag" "$work/$target" >&2 || die "the $target image could not be built"
    archive "localhost/trainyard-$target:$tag" "$target" "$tag"
    # The archive is what is used; the stages before it would pile up, 1.5 GB with each build.
    build rmi "localhost/trainyard-$target:$tag" >/dev/null
    build rmi --prune --force >/dev/null
  fi
  announce "$target" "$tag"
  rm -rf "${work:?}/$target"
done
