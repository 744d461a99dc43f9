#!/usr/bin/env bash
# Writes a kubeconfig that acts as a service account, with a token made for it: what RBAC allows can then be tried.
#   tests/cluster/service_account.sh --kubeconfig ADMIN --namespace NS --account NAME --out FILE [--kubectl PROGRAM] [--duration 1h]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
kubeconfig="" kubectl="$(controlplane_dir)/kubectl" namespace=default account="" out="" duration=1h
while [ $# -gt 0 ]; do
  case $1 in
    --kubeconfig) kubeconfig=$2; shift 2 ;;
    --kubectl) kubectl=$2; shift 2 ;;
    --namespace) namespace=$2; shift 2 ;;
    --account) account=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --duration) duration=$2; shift 2 ;;
    *) die "service_account.sh does not know $1: --kubeconfig ADMIN --namespace NS --account NAME --out FILE [--kubectl PROGRAM] [--duration 1h]" ;;
  esac
done
[ -n "$kubeconfig" ] && [ -n "$account" ] && [ -n "$out" ] || die "service_account.sh needs --kubeconfig, --account and --out"
admin=("$kubectl" --kubeconfig "$kubeconfig")
token=$("${admin[@]}" -n "$namespace" create token "$account" --duration "$duration")
server=$("${admin[@]}" config view -o 'jsonpath={.clusters[0].cluster.server}')
ca=$("${admin[@]}" config view --flatten --raw -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}')
umask 077
cat >"$out" <<YAML
apiVersion: v1
kind: Config
clusters:
  - name: trainyard
    cluster: {server: "$server", certificate-authority-data: "$ca"}
users:
  - name: $account
    user: {token: "$token"}
contexts:
  - name: trainyard
    context: {cluster: trainyard, user: $account, namespace: $namespace}
current-context: trainyard
YAML
