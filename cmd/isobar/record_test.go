package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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
			Refuse: func(time.Time) {},
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
	if text := replayed(file, "-q"); !strings.Contains(text, "all of them are decided again the same, byte for byte") {
		t.Errorf("it says %s", text)
	}
	// To be shared, without names.
	shared := file + ".shared"
	if err := run(t.Context(), []string{"record", "--admin", p.api, "-o", shared, "--for", "3s", "--anonymise"}, &told, &told); err != nil {
		t.Fatal(err)
	}
	if text := replayed(shared); !strings.Contains(text, "decided again the same, byte for byte") || strings.Contains(text, "checkout") {
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
