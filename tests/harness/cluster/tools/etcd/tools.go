//go:build tools

// Package tools names the commands that the cluster harness builds from this module.
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
)
