package server

import (
	"reflect"

	"github.com/isobar-xds/isobar/internal/config"
)

// needsRestart lists the settings that a reload can't change.
func needsRestart(old, next *config.Fixed) []string {
	var out []string
	add := func(name string, changed bool) {
		if changed {
			out = append(out, name)
		}
	}
	add("xds", !reflect.DeepEqual(old.XDS, next.XDS))
	add("admin", !reflect.DeepEqual(old.Admin, next.Admin))
	add("state_dir", old.StateDir != next.StateDir)
	add("replicas", !reflect.DeepEqual(old.Replicas, next.Replicas))
	add("log", old.Log != next.Log)
	add("trace", !reflect.DeepEqual(old.Trace, next.Trace))
	return out
}
