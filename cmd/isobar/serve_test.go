package main

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
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

// TestHangupDoesNotEndTheServer: a terminal that is closed, and an operator who
// expects it to read its files again, send the same signal.
func TestHangupDoesNotEndTheServer(t *testing.T) {
	p := newProcess(t, "", []isobar.Locality{isobar.MustLocality("us/a")}, nil)
	p.start()
	p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	for n := range 3 {
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		testhelp.Eventually(t, "the log line of the signal", func() bool { return strings.Count(p.stderr.String(), "received SIGHUP") > n })
	}
	if _, err := p.plan(); err != nil {
		t.Error(err)
	}
}

// TestHangupWhileTheServerStarts: who has it read its files again just after it
// was started does not end it either. Its configuration comes by a pipe here, so
// that it is still reading that.
func TestHangupWhileTheServerStarts(t *testing.T) {
	p := newProcess(t, "", []isobar.Locality{isobar.MustLocality("us/a")}, nil)
	configuration, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(p.file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(p.file, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(p.file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.start()
	if _, err := pipe.Write(bytes.Repeat([]byte("#\n"), 100_000)); err != nil { // more than a pipe holds: a part was read
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.Write(configuration); err != nil {
		t.Fatal(err)
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	testhelp.Eventually(t, "the log line of the signal", func() bool { return strings.Contains(p.stderr.String(), "received SIGHUP") })
}

// TestKillAndRestartUnderLoad kills the server with SIGKILL while real grpc-go
// xDS clients send requests, and starts it again on the same state: no request
// fails, the weights are those from before, and versions go on.
func TestKillAndRestartUnderLoad(t *testing.T) {
	zones := []isobar.Locality{isobar.MustLocality("us/a"), isobar.MustLocality("us/b")}
	// Without declared capacity shares depend on where demand comes from, not on
	// how much it is, so that they stand still under random arrivals: all
	// clients are in one of two zones, which keeps 1.25/2 of it.
	p := newProcess(t, "", zones, nil)
	p.start()
	p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	clients := p.clients(zones[:1], 2)
	var failed, sent atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for i, c := range clients {
		gen := fleet.Poisson{
			Seed: uint64(i), Rate: func(time.Time) float64 { return 60 },
			Send: func(ctx context.Context, _ time.Time) {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
				defer cancel()
				sent.Add(1)
				if _, err := c.Call(ctx); err != nil {
					failed.Add(1)
					t.Logf("a request failed: %v", err)
				}
			},
			Refuse: func(time.Time, string) { failed.Add(1) },
		}
		load.Go(func() { gen.Run(ctx) })
	}
	// Demand is measured, and the shares of a source stand for three plans.
	before := p.await("steady shares at measured demand", func(v admin.PlanView) bool { return p.steady(v, 100) })

	p.kill()
	calm := sent.Load() + 120 // about a second without a server
	for sent.Load() < calm {
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // real processes: bounded by the load
	}
	p.start()
	after := p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	if !reflect.DeepEqual(weights(before), weights(after)) {
		t.Errorf("weights before: %v\nafter: %v", weights(before), weights(after))
	}
	if number(t, after.Version) <= number(t, before.Version) {
		t.Errorf("version went from %s to %s", before.Version, after.Version)
	}
	// The clients come back and report; what they are told stays the same.
	later := p.await("reports of all clients", func(v admin.PlanView) bool { return p.steady(v, 100) && v.Services[0].Hold == "" })
	if !reflect.DeepEqual(weights(before), weights(later)) {
		t.Errorf("weights before: %v\nwith reports again: %v", weights(before), weights(later))
	}
	stop()
	load.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of %d requests failed", failed.Load(), sent.Load())
	}
}

// crashesEnv says how often the server is killed; `make soak` asks for 200.
const crashesEnv = "ISOBAR_CRASHES"

// TestCrashes kills the server with SIGKILL at random moments, while its state
// is written as fast as it goes, and then flips a bit of one of its files: it
// always serves a good plan again within five seconds, and versions go on.
func TestCrashes(t *testing.T) {
	times := 15
	if s := os.Getenv(crashesEnv); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%s: %v", crashesEnv, err)
		}
		times = n
	}
	random := rand.New(rand.NewPCG(uint64(times), 7))
	zones := []isobar.Locality{isobar.MustLocality("us/a"), isobar.MustLocality("us/b")}
	p := newProcess(t, "", zones, []int{100, 100})
	makeWritable(t, p.file)
	state := filepath.Join(filepath.Dir(p.file), "state")
	last := uint64(0)
	var starts []time.Duration
	machine := watchStalls(t)
	for i := range times {
		began := time.Now()
		p.start()
		v := p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
		starts = append(starts, time.Since(began)-machine.between(began, time.Now()))
		if n := number(t, v.Version); n <= last {
			t.Fatalf("start %d: version %d after %d", i, n, last)
		}
		if len(v.Violations) > 0 || len(v.Services) != 1 || len(v.Services[0].Localities) != 2 {
			t.Errorf("start %d: %+v; server says: %s", i, v, p.stderr.String())
		}
		last = max(number(t, v.Version), p.killWhileWriting(t, time.Duration(random.IntN(150))*time.Millisecond))
		flip(t, random, state, i)
	}
	const bound = 5 * time.Second
	slices.Sort(starts)
	if median, most := starts[len(starts)/2], starts[len(starts)-1]; median > bound || most > bound+slack {
		t.Errorf("plans came after %v, want %v", starts, bound)
	}
}

func makeWritable(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data = []byte(strings.Replace(string(data), "admin: {", "admin: {writable: true, ", 1))
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// killWhileWriting kills the server after a while in which it writes its state
// as fast as it goes, and returns the highest version that anybody was told of.
func (p *process) killWhileWriting(t *testing.T, after time.Duration) uint64 {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var highest atomic.Uint64
	var writers sync.WaitGroup
	writers.Go(func() {
		remote, err := admin.NewRemote(p.api)
		for n := 0; err == nil && ctx.Err() == nil; n++ {
			var out admin.Operated
			if n%2 == 0 {
				out, err = remote.Pause(ctx, admin.OperatorRequest{})
			} else {
				out, err = remote.Resume(ctx, admin.OperatorRequest{})
			}
			if err == nil {
				highest.Store(number(t, out.Version))
			}
		}
	})
	time.Sleep(after) //nolint:forbidigo // a real process: the moment is what is tested
	p.kill()
	stop()
	writers.Wait()
	return highest.Load()
}

// flip changes a bit of one of the files, in turn.
func flip(t *testing.T, random *rand.Rand, dir string, turn int) {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("no state: %v", err)
	}
	file := files[turn%len(files)]
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) == 0 {
		return
	}
	data[random.IntN(len(data))] ^= 1 << random.IntN(8)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
