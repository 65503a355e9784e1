package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestServeEndsWithoutAnError: who stops the server reads of no error.
func TestServeEndsWithoutAnError(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "isobar.yaml")
	text := "xds: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\"}\nstate_dir: " + filepath.Join(dir, "state") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var log testhelp.Log
	done := make(chan error, 1)
	go func() { done <- run(ctx, []string{"serve", "-c", file}, io.Discard, &log) }()
	for limit := time.Now().Add(time.Minute); !strings.Contains(log.String(), "msg=serving"); <-time.After(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("it never served: %s", log.String())
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := log.String(); !strings.Contains(got, "msg=stopped\n") || strings.Contains(got, "error") {
		t.Errorf("the log says %s", got)
	}
}
