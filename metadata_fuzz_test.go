package isobar_test

import (
	"encoding/json"
	"testing"

	"github.com/isobar-xds/isobar"
)

// FuzzParseMetadata: whatever text is taken has one canonical form, within
// bounds, that says the same.
func FuzzParseMetadata(f *testing.F) {
	for _, text := range []string{
		`{}`, `null`, `{"envoy.lb": {"version": "canary", "n": [1e3, -0.5, null, {"x": {}}]}}`,
		`{"a": {"<": "\u2028\ud800"}, "a": {}}`, `{"": {}}`, `{"a": 1}`, `{"a": ` + nested(17) + `}`, "{\"a\": {\"\xff\": 1}}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := isobar.ParseMetadata(text)
		if err != nil {
			return
		}
		if len(m) > isobar.MaxMetadata {
			t.Fatalf("%d bytes", len(m))
		}
		filters, err := m.Filters()
		if err != nil {
			t.Fatalf("%s: %v", m, err)
		}
		if again, err := isobar.NewMetadata(filters); err != nil || again != m {
			t.Fatalf("%s became %s, %v", m, again, err)
		}
		var read isobar.Metadata
		written, err := json.Marshal(m)
		if err != nil {
			t.Fatalf("%s: %v", m, err)
		}
		if err := json.Unmarshal(written, &read); err != nil || read != m {
			t.Fatalf("%s was written as %s and read as %s, %v", m, written, read, err)
		}
	})
}
