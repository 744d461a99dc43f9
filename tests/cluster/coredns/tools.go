//go:build tools

// Package coredns pins CoreDNS, which resolves names for the pods of real test nodes; setup.sh builds its command.
package coredns

import _ "github.com/coredns/coredns"
