//go:build tools

// Package tools names the commands that the cluster harness builds from this module.
package tools

import (
	_ "github.com/coredns/coredns"
)
