# Shared by the scripts of this directory: messages, the cache, ports, and background programs that are ours. Source it.
# Every program is started with an absolute path below the run's directory in its arguments; a pid file is believed only
# while the process still carries that path, so a pid that was given to somebody else is never killed.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
cache=${TRAINYARD_CACHE:-$HOME/.cache/trainyard}

say() { printf 'cluster: %s\n' "$*"; }
die() { printf 'cluster: %s\n' "$*" >&2; exit 1; }
# What is missing on this machine: the part is skipped (exit 77, which ctest understands), unless it was asked for.
cannot() {
  if [ "${TRAINYARD_REQUIRE_CLUSTER:-}" = 1 ]; then
    die "$*, and TRAINYARD_REQUIRE_CLUSTER=1 asks for it"
  fi
  printf 'cluster: SKIPPED: %s\n' "$*" >&2
  exit 77
}

# fetch_pinned WHAT URL SHA256 FILE: FILE lies in a directory of the caller's that goes when the fetch does not succeed.
fetch_pinned() {
  say "fetching $1 from $2"
  if ! curl -fsSL --retry 3 -o "$4" "$2"; then
    rm -rf "$(dirname "$4")"
    cannot "$1 is needed, and $2 cannot be fetched"
  fi
  if [ "$(sha256sum <"$4" | cut -d' ' -f1)" != "$3" ]; then
    rm -rf "$(dirname "$4")"
    die "$1 from $2 is not what it should be (its hash differs): nothing was installed"
  fi
}

# Where the program that is the whole control plane lives: named by what it is built from.
controlplane_dir() {
  printf '%s/controlplane-%s' "$cache" "$(cat "$here"/controlplane/{go.mod,go.sum,main.go} | sha256sum | cut -c1-16)"
}

# Where the program of the Go module in the directory NAME lives, likewise.
program_dir() {
  printf '%s/%s-%s' "$cache" "$1" "$(cat "$here/$1"/go.mod "$here/$1"/go.sum "$here/$1"/*.go | sha256sum | cut -c1-16)"
}

# free_port: a TCP port that nobody listens on, outside the range the kernel gives to outgoing connections.
# Another run may still take it first, so whoever uses it checks that its own program answers.
free_port() {
  local port
  for _ in $(seq 200); do
    port=$((RANDOM % 12000 + 20000))
    if ! ss -Hltn "sport = :$port" 2>/dev/null | grep -q .; then
      printf '%s' "$port"
      return 0
    fi
  done
  die "no free TCP port between 20000 and 32000"
}

# start_part DIR NAME COMMAND...: in a session of its own, output to DIR/logs/NAME.log, pid in DIR/pids/NAME.
start_part() {
  local dir=$1 name=$2
  shift 2
  mkdir -p "$dir/logs" "$dir/pids"
  setsid "$@" >>"$dir/logs/$name.log" 2>&1 </dev/null 9>&- &
  printf '%s' $! >"$dir/pids/$name"
  disown
  # A fork that is not the program yet would look like one that is gone.
  for _ in $(seq 100); do
    [ -z "$(part_pid "$dir" "$name")" ] && kill -0 "$!" 2>/dev/null || break
    sleep 0.05
  done
}

# part_pid DIR NAME: its pid if it runs and is ours, else nothing.
part_pid() {
  local dir=$1 name=$2 pid
  pid=$(cat "$dir/pids/$name" 2>/dev/null) || return 0
  if [ -n "$pid" ] && { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -qF -- "$dir/"; then
    printf '%s' "$pid"
  fi
}

# stop_part DIR NAME [SECONDS]: TERM, then KILL after so long.
stop_part() {
  local dir=$1 name=$2 patience=${3:-5} pid
  pid=$(part_pid "$dir" "$name")
  if [ -n "$pid" ]; then
    kill -TERM "$pid" 2>/dev/null || true
    for _ in $(seq $((patience * 20))); do
      [ -n "$(part_pid "$dir" "$name")" ] || break
      sleep 0.05
    done
    pid=$(part_pid "$dir" "$name")
    [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true
  fi
  rm -f "$dir/pids/$name"
}

# run_dir DIR: absolute, without a trailing slash.
run_dir() {
  [ -n "$1" ] || die "--dir DIR is needed"
  realpath -m -- "$1"
}
