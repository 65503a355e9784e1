package reload

import "runtime/debug"

// To take over a file needs many times its size for a moment, beside what is in force, and Go
// lets garbage grow to as much again as is in use then. From largeFile bytes on, garbage may
// only grow to frugalPercent of that, at the price of a few seconds of processor time for the
// largest files, and what was needed for the change is given back to the system.
const (
	largeFile     = 2 << 20
	frugalPercent = 50
)

// Frugally makes Go collect garbage sooner until done is called, for a file of so many bytes.
func Frugally(bytes int) (done func()) {
	if bytes < largeFile {
		return func() {}
	}
	usual := debug.SetGCPercent(frugalPercent)
	if usual < frugalPercent { // GOGC says less, or off
		debug.SetGCPercent(usual)
	}
	return func() {
		debug.SetGCPercent(usual)
		debug.FreeOSMemory()
	}
}
