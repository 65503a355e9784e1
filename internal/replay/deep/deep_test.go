package deep_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar/internal/replay/deep"
)

// thing has a field of every kind, some of them unexported, and refers to
// others of its kind in every way.
type thing struct {
	Bool    bool
	small   int8
	Int     int64
	u8      uint8
	u16     uint16
	u32     uint32
	u64     uint64
	Float   float64
	Single  float32
	Text    string
	bytes   []byte
	at      time.Time
	For     time.Duration
	array   [2]string
	list    []thing
	next    *thing
	shared  []*thing
	numbers []float64
	byName  map[string]*thing
	byPlace map[place]int
	inner   struct{ a, b int }
}

type place struct{ region, zone string }

// drawThing draws a graph: things refer to those in the pool, also to
// themselves.
func drawThing(t *rapid.T, pool []*thing, depth int) thing {
	other := rapid.SampledFrom(append([]*thing{nil}, pool...))
	text := rapid.SampledFrom([]string{"", "a", "b", strings.Repeat("long ", 20)})
	x := thing{
		Bool: rapid.Bool().Draw(t, "bool"), small: rapid.Int8().Draw(t, "int8"), Int: rapid.Int64().Draw(t, "int"),
		u8: rapid.Byte().Draw(t, "u8"), u16: rapid.Uint16().Draw(t, "u16"), u32: rapid.Uint32().Draw(t, "u32"), u64: rapid.Uint64().Draw(t, "u64"),
		Float:  rapid.SampledFrom([]float64{0, 1, -0.5, 1e300, math.Inf(1), math.Copysign(0, -1)}).Draw(t, "float"),
		Single: rapid.SampledFrom([]float32{0, 1, -0.5, 1e30, float32(math.Inf(1))}).Draw(t, "single"), Text: text.Draw(t, "text"),
		bytes: rapid.SampledFrom([][]byte{nil, {}, {1, 2}}).Draw(t, "bytes"), at: drawTime(t), For: time.Duration(rapid.Int64().Draw(t, "for")),
		array: [2]string{text.Draw(t, "first"), text.Draw(t, "second")}, next: other.Draw(t, "next"),
		shared:  rapid.SliceOfN(other, 0, 3).Draw(t, "shared"),
		numbers: rapid.SampledFrom([][]float64{nil, {}, numbers, numbers[:1]}).Draw(t, "numbers"),
	}
	x.inner.b = rapid.Int().Draw(t, "inner")
	if rapid.Bool().Draw(t, "maps") {
		x.byName, x.byPlace = map[string]*thing{}, map[place]int{}
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			x.byName[text.Draw(t, "key")] = other.Draw(t, "value")
			x.byPlace[place{text.Draw(t, "region"), text.Draw(t, "zone")}] = rapid.Int().Draw(t, "number")
		}
	}
	if depth > 0 {
		for range rapid.IntRange(0, 2).Draw(t, "list") {
			x.list = append(x.list, drawThing(t, pool, depth-1))
		}
	}
	return x
}

var numbers = []float64{1, 2, 3}

func drawTime(t *rapid.T) time.Time {
	switch rapid.IntRange(0, 4).Draw(t, "time") {
	case 0:
		return time.Time{}
	case 1:
		return time.Now().Add(time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, "now")))
	case 2:
		return time.Now().Round(0)
	case 3:
		return time.Now().UTC()
	default:
		return time.Unix(rapid.Int64Range(-1e11, 1e11).Draw(t, "seconds"), 5).UTC()
	}
}

func drawGraph(t *rapid.T) []*thing {
	pool := make([]*thing, rapid.IntRange(1, 4).Draw(t, "things"))
	for i := range pool {
		pool[i] = &thing{}
	}
	for _, x := range pool {
		*x = drawThing(t, pool, 2)
	}
	return pool
}

// TestRoundTrip: what is read is what was written, and written again it is the
// same bytes, which only holds if what was shared still is.
func TestRoundTrip(t *testing.T) {
	for _, sharing := range []bool{false, true} {
		rapid.Check(t, func(t *rapid.T) {
			in := drawGraph(t)
			e := deep.NewEncoder(sharing)
			if err := e.Encode(&in); err != nil {
				t.Fatal(err)
			}
			var out []*thing
			d := deep.NewDecoder(e.Bytes(), sharing, 1<<30)
			if err := d.Decode(&out); err != nil || len(d.Rest()) > 0 {
				t.Fatalf("%v, %d bytes left", err, len(d.Rest()))
			}
			if !reflect.DeepEqual(in, out) {
				t.Fatalf("%+v became %+v", in, out)
			}
			again := deep.NewEncoder(sharing)
			if err := again.Encode(&out); err != nil || string(again.Bytes()) != string(e.Bytes()) {
				t.Fatalf("written again it is other bytes, %v", err)
			}
		})
	}
}

// TestKnown: what both sides have is not written again, and is the same memory
// afterwards.
func TestKnown(t *testing.T) {
	type list struct{ Parts [][]float64 }
	before := list{[][]float64{{1, 2}, {3}}}
	after := list{[][]float64{before.Parts[1], {4}, before.Parts[0]}}
	first := deep.NewEncoder(true)
	if err := first.Encode(&before); err != nil {
		t.Fatal(err)
	}
	var read list
	if err := deep.NewDecoder(first.Bytes(), true, 1<<20).Decode(&read); err != nil {
		t.Fatal(err)
	}
	second := deep.NewEncoder(true)
	if err := errors.Join(second.Known(&before), second.Encode(&after)); err != nil {
		t.Fatal(err)
	}
	d := deep.NewDecoder(second.Bytes(), true, 1<<20)
	var next list
	if err := errors.Join(d.Known(&read), d.Decode(&next)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(next, after) || &next.Parts[0][0] != &read.Parts[1][0] || &next.Parts[2][0] != &read.Parts[0][0] {
		t.Errorf("%v became %v, or other memory", after, next)
	}
}

// TestMonotonicReadings: differences of times go into numbers, so they are kept
// to the nanosecond, also where the clock of the wall was set meanwhile.
func TestMonotonicReadings(t *testing.T) {
	type times struct{ A, B, C time.Time }
	now := time.Now()
	in := times{A: now, B: now.Add(1234567891), C: now.Round(0).Add(-time.Hour)}
	e := deep.NewEncoder(false)
	if err := e.Encode(&in); err != nil {
		t.Fatal(err)
	}
	var out times
	if err := deep.NewDecoder(e.Bytes(), false, 1<<20).Decode(&out); err != nil {
		t.Fatal(err)
	}
	if in != out { // the readings, too, shall be the same
		t.Errorf("%#v became %#v", in, out)
	}
	if out.B.Sub(out.A) != in.B.Sub(in.A) || out.A.Sub(out.C) != in.A.Sub(in.C) {
		t.Errorf("%v and %v between them, want %v and %v", out.B.Sub(out.A), out.A.Sub(out.C), in.B.Sub(in.A), in.A.Sub(in.C))
	}
}

// TestLongChains: pointers take no stack.
func TestLongChains(t *testing.T) {
	type link struct{ Next *link }
	var in *link
	for range 200_000 {
		in = &link{Next: in}
	}
	e := deep.NewEncoder(true)
	if err := e.Encode(&in); err != nil {
		t.Fatal(err)
	}
	var out *link
	if err := deep.NewDecoder(e.Bytes(), true, 1<<30).Decode(&out); err != nil {
		t.Fatal(err)
	}
	n := 0
	for l := out; l != nil; l = l.Next {
		n++
	}
	if n != 200_000 {
		t.Errorf("%d links", n)
	}
}

// TestTypes: what can't be written is refused with its place.
func TestTypes(t *testing.T) {
	type holder struct {
		Deep []map[string]struct{ F func() }
	}
	for want, v := range map[string]any{
		"Deep[][].F is a func":    holder{},
		"is a chan":               struct{ C chan int }{},
		"is a interface":          struct{ E error }{},
		"keys with a ptr in them": map[*int]bool{},
		"keys with a slice in them": struct {
			M map[string]map[[1]struct{ p *int }]bool
		}{},
	} {
		err := deep.Check(v)
		if want == "keys with a slice in them" {
			want = "keys with a ptr in them"
		}
		if !errors.Is(err, deep.ErrType) || !strings.Contains(err.Error(), want) {
			t.Errorf("%T: %v, want %q", v, err, want)
		}
	}
	if err := deep.NewEncoder(false).Encode(thing{}); !errors.Is(err, deep.ErrType) {
		t.Errorf("a value and no pointer: %v", err)
	}
}

// TestSum: digests tell what values say, not where they are nor what they share.
func TestSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawThing(t, nil, 2)
		var copied thing
		e := deep.NewEncoder(false)
		if err := e.Encode(&x); err != nil {
			t.Fatal(err)
		}
		if err := deep.NewDecoder(e.Bytes(), false, 1<<30).Decode(&copied); err != nil {
			t.Fatal(err)
		}
		var one, two deep.Digester
		a, err := one.Sum(&x)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := two.Sum(&copied); err != nil || a != b {
			t.Fatalf("%x and %x, %v", a, b, err)
		}
		copied.inner.a++
		two.Forget()
		if b, _ := two.Sum(&copied); a == b {
			t.Fatal("another value has the same digest")
		}
	})
	type loop struct{ self *loop }
	var l loop
	l.self = &l
	if _, err := new(deep.Digester).Sum(&l); !errors.Is(err, deep.ErrType) {
		t.Errorf("a value that is part of itself: %v", err)
	}
}

// TestDamagedData never panics, nor takes more memory than it may.
func TestDamagedData(t *testing.T) {
	e := deep.NewEncoder(true)
	x := thing{Text: "text", numbers: []float64{1, 2}, byName: map[string]*thing{"a": {Int: 1}}, list: make([]thing, 2)}
	if err := e.Encode(&x); err != nil {
		t.Fatal(err)
	}
	whole := e.Bytes()
	for i := range whole {
		for _, b := range []byte{0, 1, 2, 0x7f, 0x80, 0xff} {
			bad := append([]byte(nil), whole...)
			bad[i] = b
			var out thing
			_ = deep.NewDecoder(bad, true, 1<<16).Decode(&out)
		}
		var out thing
		if err := deep.NewDecoder(whole[:i], true, 1<<16).Decode(&out); !errors.Is(err, deep.ErrData) {
			t.Fatalf("cut to %d of %d bytes: %v", i, len(whole), err)
		}
	}
	if err := deep.NewDecoder(whole, true, 100).Decode(&thing{}); err == nil || !strings.Contains(err.Error(), "more memory") {
		t.Errorf("100 bytes of memory: %v", err)
	}
}
