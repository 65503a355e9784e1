package plan

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/isobar-xds/isobar/internal/appendjson"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestAppendedJSON asserts that what is written without reflection is what json.Marshal writes:
// earlier programs read it, and a field that the encoders do not know would be lost.
func TestAppendedJSON(t *testing.T) {
	refused := 0
	const rounds = 3000
	for seed := range uint64(rounds) {
		var d sharedDecision
		testhelp.Arbitrary(&d, seed)
		want, bad := json.Marshal(&d)
		b := appendjson.New(nil)
		appendDecision(b, &d)
		got, err := b.Bytes()
		if (err != nil) != (bad != nil) {
			t.Fatalf("seed %d: %v, and json.Marshal: %v", seed, err, bad)
		}
		if bad != nil {
			refused++
			continue
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("seed %d:\n%s\nwant\n%s", seed, got, want)
		}
	}
	if refused > rounds/2 {
		t.Fatalf("%d of %d can't be encoded", refused, rounds)
	}
}

// TestSavedJSON asserts that a saved plan is read as it was.
func TestSavedJSON(t *testing.T) {
	for seed := range uint64(300) {
		var saved Saved
		testhelp.Arbitrary(&saved, seed)
		want, bad := json.Marshal(&saved)
		got, err := saved.AppendJSON([]byte("x"))
		if (err != nil) != (bad != nil) {
			t.Fatalf("seed %d: %v, and json.Marshal: %v", seed, err, bad)
		}
		if bad != nil {
			continue
		}
		var a, b any // the services come first, and nil is an empty list
		if json.Unmarshal(got[1:], &a) != nil || json.Unmarshal(want, &b) != nil {
			t.Fatalf("seed %d: %s is no JSON", seed, got)
		}
		if len(saved.Services) == 0 {
			b.(map[string]any)["services"] = []any{}
		}
		got, _ = json.Marshal(a)
		if want, _ = json.Marshal(b); !bytes.Equal(got, want) {
			t.Fatalf("seed %d:\n%s\nwant\n%s", seed, got, want)
		}
	}
}
