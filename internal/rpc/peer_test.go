package rpc_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// TestDefectsAreToldWithABound: each stream that a panic ends gets its status,
// and the log does not grow with every one of them.
func TestDefectsAreToldWithABound(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var panics rpc.Panics
	broken := func() (err error) {
		defer panics.Recovered(&err, log, "method", "M")
		panic("a bug")
	}
	for range 1000 {
		if err := broken(); status.Code(err) != codes.Internal {
			t.Fatal(err)
		}
	}
	lines := strings.Count(out.String(), "a bug")
	if lines == 0 || lines > 50 || !strings.Contains(out.String(), "peer_test.go") {
		t.Errorf("%d lines:\n%.2000s", lines, out.String())
	}
}
