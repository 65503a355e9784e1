package deep

import (
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"time"
	"unsafe"
)

func writeByte(e *Encoder, _ *coder, p unsafe.Pointer) { e.buf = append(e.buf, *(*byte)(p)) }

func readByte(d *Decoder, c *coder, p unsafe.Pointer) {
	b := d.byte()
	if c.typ.Kind() == reflect.Bool && b > 1 {
		d.failf("%d is no truth value", b)
		return
	}
	*(*byte)(p) = b
}

func writeUint(e *Encoder, c *coder, p unsafe.Pointer) { e.uint(loadUint(c, p)) }

func readUint(d *Decoder, c *coder, p unsafe.Pointer) {
	v := d.uint()
	switch c.size {
	case 2:
		*(*uint16)(p) = uint16(v) //nolint:gosec // checked below
	case 4:
		*(*uint32)(p) = uint32(v) //nolint:gosec // checked below
	default:
		*(*uint64)(p) = v
	}
	if loadUint(c, p) != v {
		d.failf("%d is too large for a %s", v, c.typ)
	}
}

func loadUint(c *coder, p unsafe.Pointer) uint64 {
	switch c.size {
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(*(*uint32)(p))
	default:
		return *(*uint64)(p)
	}
}

func writeInt(e *Encoder, c *coder, p unsafe.Pointer) { e.int(loadInt(c, p)) }

func readInt(d *Decoder, c *coder, p unsafe.Pointer) {
	v := d.int()
	switch c.size {
	case 1:
		*(*int8)(p) = int8(v) //nolint:gosec // checked below
	case 2:
		*(*int16)(p) = int16(v) //nolint:gosec // checked below
	case 4:
		*(*int32)(p) = int32(v) //nolint:gosec // checked below
	default:
		*(*int64)(p) = v
	}
	if loadInt(c, p) != v {
		d.failf("%d is too large for a %s", v, c.typ)
	}
}

func loadInt(c *coder, p unsafe.Pointer) int64 {
	switch c.size {
	case 1:
		return int64(*(*int8)(p))
	case 2:
		return int64(*(*int16)(p))
	case 4:
		return int64(*(*int32)(p))
	default:
		return *(*int64)(p)
	}
}

// writeFloat puts the end first: most numbers are short in binary.
func writeFloat(e *Encoder, _ *coder, p unsafe.Pointer) {
	e.uint(bits.ReverseBytes64(math.Float64bits(*(*float64)(p))))
}

func readFloat(d *Decoder, _ *coder, p unsafe.Pointer) {
	*(*float64)(p) = math.Float64frombits(bits.ReverseBytes64(d.uint()))
}

// writeFloat32 puts the end first, as writeFloat.
func writeFloat32(e *Encoder, _ *coder, p unsafe.Pointer) {
	e.uint(uint64(bits.ReverseBytes32(math.Float32bits(*(*float32)(p)))))
}

func readFloat32(d *Decoder, _ *coder, p unsafe.Pointer) {
	v := d.uint()
	if v > math.MaxUint32 {
		d.failf("%d is too large for a float32", v)
	}
	*(*float32)(p) = math.Float32frombits(bits.ReverseBytes32(uint32(v))) //nolint:gosec // checked above
}

// writeString writes a text once, and its number then.
func writeString(e *Encoder, _ *coder, p unsafe.Pointer) {
	s := *(*string)(p)
	if s == "" {
		e.uint(0)
		e.uint(0)
		return
	}
	if id, known := e.strings[s]; known {
		e.uint(id)
		return
	}
	e.strings[s] = uint64(len(e.strings)) + 1
	e.uint(0)
	e.uint(uint64(len(s)))
	e.buf = append(e.buf, s...)
}

func readString(d *Decoder, c *coder, p unsafe.Pointer) {
	text, known := readText(d)
	if d.rename != nil && text != "" && !known {
		text = d.rename(c.typ, text)
	}
	*(*string)(p) = text
}

// readText reads a text, and reports whether it is one of a value that was known
// before, which has the names of now.
func readText(d *Decoder) (text string, known bool) {
	if id := d.uint(); id > 0 {
		if id > uint64(len(d.strings)) {
			d.failf("text %d of %d", id, len(d.strings))
			return "", false
		}
		return d.strings[id-1], id <= uint64(d.knownTexts) //nolint:gosec // not negative
	}
	n := d.length()
	if n == 0 || !d.take(n, 1) {
		return "", false
	}
	s := string(d.data[:n])
	d.data = d.data[n:]
	d.strings = append(d.strings, s)
	return s, false
}

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
