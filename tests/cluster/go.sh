# ensure_go: sets `go` to a Go command that can build the modules of this directory. Source lib.sh first.
# Debian 12 has Go 1.19, so where there is no newer one the toolchain is taken from the Go module proxy into the cache: it is
# published as a module like any other. Its hash is pinned.
go_version=1.24.13
go_sha256=d2b048367a3d1a748b87f756fa06df12ce3b419e1d5f2a3612acb8950d615f9f

go_new_enough() {
  local version
  version=$(GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null) || return 1
  [[ $version =~ ^go1\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge 24 ]
}

ensure_go() {
  local candidate proxy target part
  for candidate in go /usr/local/go/bin/go "$cache/go-$go_version/bin/go"; do
    if go_new_enough "$candidate"; then
      go=$candidate
      return 0
    fi
  done
  [ "$(uname -sm)" = "Linux x86_64" ] || cannot "Go 1.24 or newer is needed, and this script fetches it for Linux on x86_64 only: install it"
  target="$cache/go-$go_version"
  # The first proxy of the list that is an address; "direct" and "off" name none.
  proxy=$(go env GOPROXY 2>/dev/null || true)
  proxy=$(printf '%s' "${GOPROXY:-${proxy:-https://proxy.golang.org}}" | tr ',|' '\n\n' | grep -m1 '^https\?://' || true)
  [ -n "$proxy" ] || cannot "Go 1.24 or newer is needed, and GOPROXY names no address to fetch it from"
  part=$(mktemp -d "$target.part.XXXXXX")
  fetch_pinned "Go $go_version" "${proxy%/}/golang.org/toolchain/@v/v0.0.1-go$go_version.linux-amd64.zip" "$go_sha256" \
    "$part/go.zip"
  python3 - "$part/go.zip" "$part" "golang.org/toolchain@v0.0.1-go$go_version.linux-amd64" <<'PY'
import os, pathlib, sys, zipfile
archive, target, prefix = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
with zipfile.ZipFile(archive) as z:
    z.extractall(target)
os.rename(target / prefix, target / "go")
for program in [*(target / "go/bin").iterdir(), *(p for p in (target / "go/pkg/tool").rglob("*") if p.is_file())]:
    program.chmod(0o755)  # modules carry no permissions
PY
  rm -rf "$target"
  mv "$part/go" "$target"
  rm -rf "$part"
  go="$target/bin/go"
  go_new_enough "$go" || die "Go in $target does not run: remove that directory and try again"
}
