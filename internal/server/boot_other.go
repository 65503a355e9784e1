//go:build !linux

package server

import "github.com/isobar-xds/isobar/internal/control"

// boot is not known: versions use the clock.
func boot() control.Boot { return control.Boot{} }
