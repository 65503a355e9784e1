package discovery_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/isobar-xds/isobar/internal/discovery"
)

// deadline bounds the waits for the kernel's notices.
const deadline = time.Minute

// watching runs WatchFile on real files; contents come out of the channel.
func watching(t *testing.T, path string, o discovery.WatchOptions) <-chan string {
	t.Helper()
	o.Poll, o.Stable = time.Hour, 10*time.Millisecond
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan string, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		discovery.WatchFile(ctx, path, o, func(data []byte) error {
			got <- string(data)
			if strings.HasPrefix(string(data), "bad") {
				return errors.New("file:1:1: bad")
			}
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return got
}

func next(t *testing.T, got <-chan string, want string) {
	t.Helper()
	limit := time.After(deadline)
	for {
		select {
		case s := <-got:
			if s == want {
				return
			}
		case <-limit:
			t.Fatalf("%q never came", want)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWatchFileWrittenAndReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "isobar.yaml")
	write(t, path, "one")
	got := watching(t, path, discovery.WatchOptions{})
	next(t, got, "one") // Current was not given
	write(t, path, "two")
	next(t, got, "two")
	other := filepath.Join(dir, "other")
	write(t, other, "three")
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	next(t, got, "three")
}

// Kubernetes mounts a ConfigMap as links through ..data, and swaps ..data.
func TestWatchConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := func(name, content string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "isobar.yaml"), content)
		if err := os.Symlink(name, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", "one")
	path := filepath.Join(dir, "isobar.yaml")
	if err := os.Symlink(filepath.Join("..data", "isobar.yaml"), path); err != nil {
		t.Fatal(err)
	}
	got := watching(t, path, discovery.WatchOptions{})
	next(t, got, "one")
	version("..2", "two")
	next(t, got, "two")
}

func TestWatchMetrics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "one")
	registry := prometheus.NewRegistry()
	got := watching(t, path, discovery.WatchOptions{Registerer: registry})
	next(t, got, "one")
	if n, err := testutil.GatherAndCount(registry, "isobar_discovery_file_reloads_total"); err != nil || n != 2 {
		t.Errorf("%d series (%v), want both results from the start", n, err)
	}
	write(t, path, "bad")
	next(t, got, "bad")
	write(t, path, "two")
	next(t, got, "two")
	const want = `# HELP isobar_discovery_file_reloads_total Reloads of a changed configuration file, by result: ok or refused.
# TYPE isobar_discovery_file_reloads_total counter
isobar_discovery_file_reloads_total{result="ok"} 2
isobar_discovery_file_reloads_total{result="refused"} 1
`
	var err error
	for limit := time.Now().Add(deadline); time.Now().Before(limit); {
		err = testutil.GatherAndCompare(registry, strings.NewReader(want), "isobar_discovery_file_reloads_total")
		if err == nil {
			return
		}
		<-time.After(time.Millisecond)
	}
	t.Error(err)
}
