package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/process"
	"github.com/isobar-xds/isobar/internal/loadgen"
)

// meter samples what the server uses.
type meter struct {
	server   *server
	from, to time.Time // what is measured
	log      io.Writer
	progress atomic.Pointer[loadgen.Progress]

	samples []process.Usage // in what is measured
	totals  [2]totals       // at its ends
	most    int64           // memory that was ever resident, start and reconnect included, bytes

	mu  sync.Mutex
	err error
}

// totals are counters of the server at one time.
type totals struct {
	collections, pauses, ticks, tickSeconds float64

	plans     float64       // bytes of plans that the leader sent to all followers
	observed  float64       // bytes that all followers sent to the leader
	followers time.Duration // CPU of all followers
}

const (
	sampleEvery = 5 * time.Second // how often usage is read
	lineEvery   = 30 * time.Second
)

// run samples until the end of what is measured.
func (m *meter) run(ctx context.Context, profiles string) {
	var profiling sync.WaitGroup
	defer profiling.Wait()
	if !waitUntil(ctx, m.from) {
		return
	}
	if most, err := process.MostResident(m.server.PID()); err == nil {
		_, _ = fmt.Fprintf(m.log, "   0 s: %d MiB were the most since the start\n", most>>20)
	}
	begun := make(chan totals, 1) // a busy server answers late
	go func() { begun <- m.count(ctx) }()
	if profiles != "" {
		profiling.Go(func() { m.fail(m.profile(ctx, profiles)) })
	}
	told := m.from
	for next := m.from; !next.After(m.to); next = next.Add(sampleEvery) {
		if !waitUntil(ctx, next) {
			break
		}
		u, err := process.UsageOf(m.server.PID())
		if err != nil {
			m.fail(err)
			break
		}
		m.samples = append(m.samples, u)
		if u.At.Sub(told) >= lineEvery && len(m.samples) > 1 {
			told = u.At
			m.tell(u)
		}
		for time.Until(next.Add(sampleEvery)) < 0 { // late: leave some out
			next = next.Add(sampleEvery)
		}
	}
	m.totals[0] = <-begun
	m.totals[1] = m.count(ctx)
}

func waitUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (m *meter) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.err = errors.Join(m.err, err)
	}
}

// tell prints how things stand.
func (m *meter) tell(u process.Usage) {
	first := m.samples[0]
	line := fmt.Sprintf("%4.0f s: %.2f cores, %d MiB", u.At.Sub(m.from).Seconds(), cores(first, u), u.RSS>>20)
	if p := m.progress.Load(); p != nil {
		line += fmt.Sprintf(", %d clients served, %d pushes, %d reports, %d errors", p.Answered, p.Pushes, p.Reports, p.Errors)
	}
	_, _ = fmt.Fprintln(m.log, line)
}

func (m *meter) count(ctx context.Context) (t totals) {
	var err error
	for _, c := range []struct {
		name string
		into *float64
	}{
		{"go_gc_duration_seconds_count", &t.collections},
		{"go_gc_duration_seconds_sum", &t.pauses},
		{"isobar_ticks_total", &t.ticks},
		{"isobar_tick_duration_seconds_sum", &t.tickSeconds},
		{"isobar_replica_plan_bytes_sent_total", &t.plans},
	} {
		if *c.into, err = m.server.Counter(ctx, c.name); err != nil {
			m.fail(err)
		}
	}
	for _, f := range m.server.followers {
		sent, err := f.Counter(ctx, "isobar_replica_observation_bytes_sent_total")
		m.fail(err)
		u, err := process.UsageOf(f.PID())
		m.fail(err)
		t.observed += sent
		t.followers += u.CPU
	}
	return t
}

// profile writes profiles of the server: of the processor and of what is
// allocated over the same 30 s, then of what is in use, with its metrics.
func (m *meter) profile(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	fetch := func(path, file string) error {
		data, err := m.server.Get(ctx, path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, file), data, 0o600)
	}
	allocated := make(chan error, 1)
	go func() { allocated <- fetch("/debug/pprof/allocs?seconds=30", "steady.allocs") }()
	err := fetch("/debug/pprof/profile?seconds=30", "steady.cpu")
	return errors.Join(err, <-allocated, fetch("/metrics", "steady.metrics"), fetch("/debug/pprof/heap?gc=1", "steady.heap"))
}

func cores(from, to process.Usage) float64 {
	return (to.CPU - from.CPU).Seconds() / to.At.Sub(from.At).Seconds()
}

// slope is the growth of resident memory by least squares, bytes/s.
func (m *meter) slope() float64 {
	var n, x, y, xx, xy float64
	for _, s := range m.samples {
		at, rss := s.At.Sub(m.from).Seconds(), float64(s.RSS)
		n, x, y, xx, xy = n+1, x+at, y+rss, xx+at*at, xy+at*rss
	}
	if d := n*xx - x*x; d > 0 {
		return (n*xy - x*y) / d
	}
	return 0
}

// live returns what collections left in a third of what is measured, bytes, the
// least first.
func (m *meter) live(third int) []int64 {
	step := m.to.Sub(m.from) / 3
	return m.server.heap.between(m.from.Add(time.Duration(third)*step), m.from.Add(time.Duration(third+1)*step))
}
