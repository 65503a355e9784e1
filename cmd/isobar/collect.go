package main

import (
	"os"
	"runtime/debug"
)

// pressedGC is how far the heap grows before it is collected while clients press on
// memory, in percent of what is in use. It costs processor time then, and no other time.
const pressedGC = 50

// collectMore returns what changes how often the garbage collector runs; nil where the
// environment says how often.
func collectMore() func(on bool) {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	return func(on bool) {
		percent := 100
		if on {
			percent = pressedGC
		}
		debug.SetGCPercent(percent)
	}
}
