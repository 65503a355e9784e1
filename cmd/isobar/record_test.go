package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/replay"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestRecordAndReplay records a real server with real clients, through a step of
// their load, a reload of the configuration and a kill; replays it to the same
// plans; and asks what another policy would have done.
func TestRecordAndReplay(t *testing.T) {
	zones := []isobar.Locality{isobar.MustLocality("us/a"), isobar.MustLocality("us/b")}
	p := newProcess(t, "", zones, []int{100, 90})
	p.start()
	p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	began := time.Now()
	for i, c := range p.clients(zones[:1], 2) {
		gen := fleet.Poisson{
			Seed: uint64(i), Rate: func(now time.Time) float64 { return 40 + 30*min(1, now.Sub(began).Seconds()/5) },
			Send: func(ctx context.Context, _ time.Time) {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
				defer cancel()
				_, _ = c.Call(ctx) // what becomes of it is in the load reports
			},
			Refuse: func(time.Time, string) {},
		}
		load.Go(func() { gen.Run(ctx) })
	}
	p.await("demand", func(v admin.PlanView) bool {
		return len(v.Services[0].Sources) == 1 && v.Services[0].Sources[0].Demand > 40
	})
	file := filepath.Join(t.TempDir(), "a.trace")
	var told bytes.Buffer
	recorded := make(chan error, 1)
	recording, enough := context.WithCancel(t.Context())
	defer enough()
	go func() {
		recorded <- run(recording, []string{"record", "--admin", p.api, "-o", file}, &told, &told)
	}()
	awaitRecorded(t, file, 1, 1)
	edit(t, p.file, "max_rate: 90", "max_rate: 95")
	p.await("reload and step", func(v admin.PlanView) bool {
		s := v.Services[0].Sources[0]
		return v.Services[0].Localities[1].Capacity == 95 && s.Demand > 120
	})
	p.kill()
	p.start()
	awaitRecorded(t, file, 2, 15)
	enough()
	if err := <-recorded; err != nil {
		t.Fatalf("%v\n%s", err, told.String())
	}
	if text := told.String(); !strings.Contains(text, "in 2 parts") {
		t.Errorf("it says %s", text)
	}

	var found replayReport
	replayed := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if err := run(t.Context(), append([]string{"replay"}, args...), &out, &errs); err != nil {
			t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
		}
		return out.String() + errs.String()
	}
	if err := json.Unmarshal([]byte(replayed(file, "-o", "json", "--set", "checkout:policy=nearest")), &found); err != nil {
		t.Fatal(err)
	}
	if !found.Same || found.Recordings != 2 || found.Decided["tick"] < 7 {
		t.Errorf("same: %v, %d recordings, %v decided", found.Same, found.Recordings, found.Decided)
	}
	if is, what := found.Total.Decided, found.Total.WhatIf; is.CrossZone < 0.05 || what == nil || what.CrossZone > is.CrossZone-0.1 || what.Fullest < is.Fullest {
		t.Errorf("decided %+v\nwhat if %+v", is, what)
	}
	if text := replayed(file, "-q"); !strings.Contains(text, "all of them are reproduced, byte for byte") {
		t.Errorf("it says %s", text)
	}
	// To be shared, without names.
	shared := file + ".shared"
	if err := run(t.Context(), []string{"record", "--admin", p.api, "-o", shared, "--for", "3s", "--anonymise"}, &told, &told); err != nil {
		t.Fatal(err)
	}
	if text := replayed(shared); !strings.Contains(text, "reproduced, byte for byte") || strings.Contains(text, "checkout") {
		t.Errorf("it says %s", text)
	}
	if _, err := os.Stat(shared + ".names"); !os.IsNotExist(err) {
		t.Error("what was recorded is still there")
	}
	// The file says the same in its own words.
	edit(t, p.file, "- name: checkout\n", "- name: checkout\n  policy: nearest\n")
	if text := replayed(file, "-q", "-c", p.file); !strings.Contains(text, "WHAT IF") {
		t.Errorf("with another file it says %s", text)
	}

	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cut := file + ".cut"
	if err := os.WriteFile(cut, data[:len(data)-20], 0o600); err != nil {
		t.Fatal(err)
	}
	if text := replayed(cut); !strings.Contains(text, "is cut after") || !strings.Contains(text, "byte for byte") {
		t.Errorf("cut, it says %s", text)
	}
}

// awaitRecorded waits until a file that is written holds so many recordings and
// plans.
func awaitRecorded(t *testing.T, file string, recordings int, plans int) {
	t.Helper()
	testhelp.Eventually(t, fmt.Sprintf("%d recordings with %d plans", recordings, plans), func() bool {
		data, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		found, err := replay.Skim(bytes.NewReader(data))
		return (err == nil || errors.Is(err, replay.ErrCut)) && found.Recordings >= recordings && found.Plans >= plans
	})
}

// edit replaces a text in a file at once.
func edit(t *testing.T, file, from, to string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".new", []byte(strings.Replace(string(data), from, to, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

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
			says: "a.trace.names, with all names; to try again: isobar record -o ", names: true, keeps: true,
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
	address, stop, err := startAdmin(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return address
}
