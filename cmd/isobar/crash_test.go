package main

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
)

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
// as fast as it goes, and gives the highest version that anybody was told of.
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
				out, err = remote.Pause(ctx, admin.Order{})
			} else {
				out, err = remote.Resume(ctx, admin.Order{})
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
