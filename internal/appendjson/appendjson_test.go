package appendjson_test

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar/internal/appendjson"
)

// record has a field of each kind.
type record struct {
	Float  float64   `json:"float"`
	Maybe  float64   `json:"maybe,omitempty"`
	Floats []float64 `json:"floats"`
	Ints   []int     `json:"ints"`
	Few    []int     `json:"few,omitempty"`
	Text   string    `json:"text"`
	Other  string    `json:"other,omitempty"`
	Bool   bool      `json:"bool"`
	Count  int64     `json:"count,omitempty"`
	At     time.Time `json:"at"`
	Since  time.Time `json:"since,omitzero"`
	Nested []record  `json:"nested,omitempty"`
}

func (r *record) append(b *appendjson.Buffer) {
	b.Open('{')
	b.Key("float")
	b.Float(r.Float)
	b.OptionalFloat("maybe", r.Maybe)
	b.Key("floats")
	b.Floats(r.Floats)
	b.Key("ints")
	b.Ints(r.Ints)
	b.OptionalInts("few", r.Few)
	b.Key("text")
	b.String(r.Text)
	b.OptionalString("other", r.Other)
	b.Key("bool")
	b.Bool(r.Bool)
	b.OptionalInt("count", r.Count)
	b.Key("at")
	b.Time(r.At)
	b.OptionalTime("since", r.Since)
	appendjson.OptionalArray(b, "nested", r.Nested, func(b *appendjson.Buffer, r *record) { r.append(b) })
	b.Close('}')
}

func drawRecord(t *rapid.T, nested bool) record {
	number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1), rapid.Map(rapid.Int64(), func(v int64) float64 { return float64(v) }),
		rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1e-6, 9.99e-7, 1e-9, 1e21, 1e20, 1 << 53, -1 << 53, math.MaxFloat64, math.NaN(), math.Inf(-1)}))
	finite := rapid.Float64Range(-1e22, 1e22)
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z<>&"\\]{0,5}`), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	at := func(label string) time.Time {
		zone := rapid.SampledFrom([]int{0, 3600, -5400, 86400, 12345}).Draw(t, label+" zone")
		year := rapid.SampledFrom([]int{1, 1970, 2026, 9999, 10000, -1}).Draw(t, label+" year")
		return time.Date(year, 2, 3, 4, 5, 6, rapid.IntRange(0, 999_999_999).Draw(t, label), time.UTC).In(time.FixedZone("", zone))
	}
	r := record{
		Float: number.Draw(t, "float"), Maybe: finite.Draw(t, "maybe"), Floats: rapid.SliceOfN(finite, 0, 3).Draw(t, "floats"),
		Ints: rapid.SliceOfN(rapid.Int(), 0, 3).Draw(t, "ints"), Few: rapid.SliceOfN(rapid.Int(), 0, 2).Draw(t, "few"),
		Text: text.Draw(t, "text"), Other: text.Draw(t, "other"), Bool: rapid.Bool().Draw(t, "bool"), Count: rapid.Int64().Draw(t, "count"),
		At: at("at"),
	}
	if rapid.Bool().Draw(t, "nil") {
		r.Floats, r.Ints, r.Other = nil, nil, ""
	}
	if rapid.Bool().Draw(t, "since") {
		r.Since = at("since")
	}
	for range rapid.IntRange(0, 2).Draw(t, "nested") {
		if nested {
			r.Nested = append(r.Nested, drawRecord(t, false))
		}
	}
	return r
}

// TestBuffer asserts that the bytes are those of json.Marshal, and that both refuse the same values.
func TestBuffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord(t, true)
		want, bad := json.Marshal(&r)
		b := appendjson.New([]byte("before"))
		b.Open('[')
		r.append(b)
		b.Any(map[string]int{"a": 1})
		b.Null()
		b.Close(']')
		got, err := b.Bytes()
		if (err != nil) != (bad != nil) {
			t.Fatalf("%v, and json.Marshal: %v", err, bad)
		}
		if want = append([]byte("before["), append(want, `,{"a":1},null]`...)...); bad == nil && !bytes.Equal(got, want) {
			t.Fatalf("%s\nwant\n%s", got, want)
		}
	})
}

func BenchmarkBuffer(b *testing.B) {
	r := record{Float: 483.47, Floats: []float64{0.668, 0.332, 0, 0, 0, 1}, Ints: []int{0, 1, 2}, Text: "service-0001", At: time.Unix(1e9, 123456789).UTC()}
	for name, encode := range map[string]func(){
		"append":  func() { r.append(appendjson.New(make([]byte, 0, 256))) },
		"marshal": func() { _, _ = json.Marshal(&r) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				encode()
			}
		})
	}
}
