package health_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestAppendedJSON asserts that what is written without reflection is what json.Marshal writes:
// earlier programs read it, and a field that the encoder does not know would be lost.
func TestAppendedJSON(t *testing.T) {
	refused := 0
	const rounds = 2000
	for seed := range uint64(rounds) {
		var saved health.SavedMonitor
		testhelp.Arbitrary(&saved, seed)
		want, bad := json.Marshal(&saved)
		got, err := saved.AppendJSON(nil)
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
