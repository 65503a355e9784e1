package deep

import (
	"fmt"
	"reflect"
	"time"
	"unsafe"
)

// timeParts is what a time.Time is made of; checkTime holds it against the Go
// release at hand. Only so a monotonic reading of another process can be kept.
type timeParts struct {
	wall uint64 // bit 63: there is a monotonic reading
	ext  int64  // it, or the seconds
	loc  *time.Location
}

const (
	hasMonotonic = 1 << 63
	nanosShift   = 30
)

func checkTime() error {
	t, p := reflect.TypeFor[time.Time](), reflect.TypeFor[timeParts]()
	same := t.NumField() == p.NumField()
	for i := 0; same && i < t.NumField(); i++ {
		a, b := t.Field(i), p.Field(i)
		same = a.Name == b.Name && a.Type == b.Type && a.Offset == b.Offset
	}
	if !same {
		return fmt.Errorf("%w: time.Time is laid out otherwise in this release of Go", ErrType)
	}
	return nil
}

// clock is the time before, from which the next one is told.
type clock struct {
	seconds, mono int64
}

// Times begin with these bits.
const (
	timeMono  = 1 << iota // there is a monotonic reading
	timeLocal             // to be shown in the reader's time zone, else in UTC
)

func writeTime(e *Encoder, _ *coder, p unsafe.Pointer) {
	t := *(*time.Time)(p)
	if t.Location() != time.Local && t.Location() != time.UTC { //nolint:gosmopolitan // it is where times come from
		t = t.UTC()
	}
	parts := (*timeParts)(unsafe.Pointer(&t)) //nolint:gosec // checkTime has looked at it
	var kind byte
	if parts.loc == time.Local { //nolint:gosmopolitan // it is where times come from
		kind |= timeLocal
	}
	seconds, nanos := t.Unix(), int64(t.Nanosecond())
	if parts.wall&hasMonotonic != 0 {
		kind |= timeMono
	}
	e.buf = append(e.buf, kind)
	e.int(seconds - e.clock.seconds)
	e.uint(uint64(nanos)) //nolint:gosec // not negative
	e.clock.seconds = seconds
	if kind&timeMono != 0 {
		e.int(parts.ext - e.clock.mono)
		e.clock.mono = parts.ext
	}
}

// The seconds that a time with a monotonic reading can tell, from 1885.
const (
	monoEpoch = -2682288000 // 1885-01-01 in Unix time
	monoRange = 1 << 33
)

func readTime(d *Decoder, _ *coder, p unsafe.Pointer) {
	kind := d.byte()
	seconds := d.clock.seconds + d.int()
	nanos := d.uint()
	if kind > timeMono|timeLocal || nanos >= uint64(time.Second) {
		d.failf("no time")
	}
	if d.err != nil {
		return
	}
	d.clock.seconds = seconds
	t := time.Unix(seconds, int64(nanos)) //nolint:gosec // checked
	if kind&timeLocal == 0 {
		t = t.UTC()
	}
	if kind&timeMono != 0 {
		since := seconds - monoEpoch
		if since < 0 || since >= monoRange {
			d.failf("no time of a clock")
			return
		}
		d.clock.mono += d.int()
		parts := (*timeParts)(unsafe.Pointer(&t)) //nolint:gosec // checkTime has looked at it
		parts.wall = hasMonotonic | uint64(since)<<nanosShift | nanos
		parts.ext = d.clock.mono
	}
	*(*time.Time)(p) = t
}
