//go:build tools

// Package kwok pins KWOK, the controller that simulates nodes and the life of pods; setup.sh builds its command.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
