package main

import (
	"bytes"
	"context"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/admin"
)

// TestRecordedFile: a recording takes the place of a longer one, and what is
// recorded but can't get pseudonyms stays where the error says.
func TestRecordedFile(t *testing.T) {
	dir := t.TempDir()
	scenario, recorded := filepath.Join(dir, "s.yaml"), filepath.Join(dir, "s.trace")
	const fleet = `{length: 2m, services: [{name: web, localities: [{locality: us/a, endpoints: 1, max_rate: 100}]}],
demand: [{service: web, from: us/a, rate: 50}]}`
	if err := os.WriteFile(scenario, []byte(fleet), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"simulate", scenario, "--record", recorded}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	head := whole[:len("isobartr")+2]
	longer := bytes.Repeat([]byte("yesterday\n"), len(whole))
	for _, tt := range []struct {
		name  string
		sent  []byte
		flags []string
		says  string // the error's
		names bool   // what was recorded stays beside the file
		keeps bool   // the file stays as it was
	}{
		{name: "in the place of another", sent: whole},
		{name: "nothing", keeps: true, says: "nothing was recorded"},
		{name: "under pseudonyms", sent: whole, flags: []string{"--anonymise"}},
		{
			name: "without a state, which can't get pseudonyms", sent: head, flags: []string{"--anonymise"},
			says: "a.trace.names, with all names: isobar record -o ", names: true, keeps: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "a.trace")
			if err := os.WriteFile(file, longer, 0o600); err != nil {
				t.Fatal(err)
			}
			args := append([]string{"record", "--admin", sends(t, tt.sent), "-o", file, "--for", "5s"}, tt.flags...)
			err := run(t.Context(), args, io.Discard, io.Discard)
			if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want %q", err, tt.says)
			}
			if _, err := os.Stat(file + ".names"); tt.names != (err == nil) {
				t.Errorf("the recording with its names: %v", err)
			}
			got, err := os.ReadFile(file)
			if err != nil || bytes.Equal(got, longer) != tt.keeps || !tt.keeps && bytes.Contains(got, []byte("yesterday")) {
				t.Errorf("%d bytes are in the file, %v", len(got), err)
			}
			if err == nil && tt.says == "" {
				if err := run(t.Context(), []string{"replay", "-q", file}, io.Discard, io.Discard); err != nil {
					t.Error(err)
				}
			}
			if left, _ := filepath.Glob(file + ".*"); len(left) > 1 || len(left) == 1 && !tt.names {
				t.Errorf("beside it are %v", left)
			}
		})
	}
}

// sends is the address of an admin interface that answers every request for a
// written is what a server records.
type written []byte

func (r written) Record(_ context.Context, w io.Writer) error {
	_, err := w.Write(r)
	return err
}

// recording with the same bytes.
func sends(t *testing.T, trace []byte) string {
	t.Helper()
	s, err := admin.New(admin.Options{
		Objects: noObjects{}, Parser: noParser{}, Planner: fixedPlan{}, Fleet: fixedFleet{}, Metrics: admin.Metrics{Gatherer: prometheus.NewRegistry()},
		Recorder: written(trace),
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	return srv.URL
}
