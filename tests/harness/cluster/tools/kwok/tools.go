//go:build tools

// Package tools names the commands that the cluster harness builds from this module.
package tools

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
