package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/test/bufconn"

	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
)

// TestStateThatCannotBeOpened: whatever is wrong with the state directory is
// said, and the listeners stay with the caller.
func TestStateThatCannotBeOpened(t *testing.T) {
	used := t.TempDir()
	held, err := store.Open(used, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := t.TempDir()
	for _, name := range []string{"plan.state", "plan.state.prev", "sources.state", "sources.state.prev"} {
		if err := os.WriteFile(filepath.Join(damaged, name), []byte("not what it should be"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newer, newerHistory := t.TempDir(), t.TempDir()
	future, err := os.ReadFile(filepath.Join("testdata", "newer.state"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(newer, "health.state"), filepath.Join(newerHistory, "history-03.state")} {
		if err := os.WriteFile(path, future, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name, dir, says string
		is              error
	}{
		{"in use", used, "in use by another process", store.ErrLocked},
		{"a file", file, "directory", nil},
		{"newer", newer, "start that version again, or move the file away", store.ErrNewerFormat},
		{"a newer history", newerHistory, "start that version again, or move the file away", store.ErrNewerFormat},
		{"damaged", damaged, "corrupt", store.ErrCorrupt},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := configuration(t)
			cfg.StateDir = tt.dir
			_, err := server.New(cfg, server.Listeners{XDS: bufconn.Listen(1)}, server.Options{})
			if err == nil || !strings.Contains(err.Error(), tt.says) || (tt.is != nil && !errors.Is(err, tt.is)) {
				t.Errorf("got %v, want an error that says %q", err, tt.says)
			}
		})
	}
}

// TestTheStateIsLockedBeforeThePorts: a second server with the same
// configuration is told of the first one; and one that finds its port taken
// gives the state back.
func TestTheStateIsLockedBeforeThePorts(t *testing.T) {
	cfg := configuration(t)
	cfg.StateDir, cfg.XDS.Listen, cfg.Admin.Listen = t.TempDir(), "127.0.0.1:0", ""
	taken, err := listen.All(t.Context(), &cfg.Fixed)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	cfg.XDS.Listen = taken.XDS.Addr().String()

	held, err := store.Open(cfg.StateDir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Open(t.Context(), cfg, server.Options{}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("with state and port taken it says %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Open(t.Context(), cfg, server.Options{}); err == nil || !strings.Contains(err.Error(), "xds.listen: ") {
		t.Errorf("with the port taken it says %v", err)
	}
	again, err := store.Open(cfg.StateDir, store.Options{})
	if err != nil {
		t.Fatalf("the state was not given back: %v", err)
	}
	_ = again.Close()
}
