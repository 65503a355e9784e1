package plural_test

import (
	"testing"

	"github.com/isobar-xds/isobar/internal/plural"
)

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 endpoints are", 1: "1 endpoint is", 2: "2 endpoints are"} {
		if got := plural.Count(n, "endpoint is", "endpoints are"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if got := plural.Count(uint64(1), "report", "reports"); got != "1 report" {
		t.Errorf("%q", got)
	}
}
