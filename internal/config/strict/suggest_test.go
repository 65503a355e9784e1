package strict_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/config/strict"
)

func TestNearest(t *testing.T) {
	names := []string{"checkout", "check-in", "payment", "payments", "search", strings.Repeat("x", 300)}
	for name, want := range map[string]string{
		"chekout":                  "checkout",
		"Check_out":                "checkout check-in",
		"paymnet":                  "payment payments",
		"warehouse":                "",
		"":                         "",
		strings.Repeat("x", 10000): "",
	} {
		got := strict.Nearest(name, names, 2)
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("nearest to %.20q: %q, want %q", name, got, want)
		}
	}
}
