package envoyloop

import (
	"context"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func backend(t *testing.T, o BackendOptions) *Backend {
	t.Helper()
	o.Address = "127.0.0.1:0"
	b, err := StartBackend(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// ask returns the status of a response, 0 where there is none in time.
func ask(t *testing.T, b *Backend, limit time.Duration) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.Address()+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func TestBackendFaults(t *testing.T) {
	t.Parallel()
	b := backend(t, BackendOptions{Concurrency: 1, ServiceTime: time.Millisecond})
	const patience = 20 * time.Second
	set := func(f Fault) {
		t.Helper()
		if err := b.Set(f); err != nil {
			t.Fatal(err)
		}
	}
	if got := ask(t, b, patience); got != http.StatusOK {
		t.Errorf("well: %d", got)
	}
	set(Refuse)
	if got := ask(t, b, patience); got != 0 {
		t.Errorf("refuses: %d", got)
	}
	set(Hang)
	if got := ask(t, b, 100*time.Millisecond); got != 0 {
		t.Errorf("hangs: %d", got)
	}
	set(Fail)
	failed := 0
	for range 100 {
		if ask(t, b, patience) == http.StatusInternalServerError {
			failed++
		}
	}
	if failed < 75 || failed > 99 {
		t.Errorf("fails: %d of 100 requests, want some 90", failed)
	}
	set(Well)
	if got := ask(t, b, patience); got != http.StatusOK {
		t.Errorf("well again: %d", got)
	}
}

// A backend works on so many requests at once, and turns away those above its limit.
func TestBackendQueues(t *testing.T) {
	t.Parallel()
	b := backend(t, BackendOptions{Concurrency: 2, ServiceTime: 200 * time.Millisecond, Limit: 4})
	var mu sync.Mutex
	count := map[int]int{}
	var open sync.WaitGroup
	began := time.Now()
	for range 10 {
		open.Go(func() {
			status := ask(t, b, 20*time.Second)
			mu.Lock()
			defer mu.Unlock()
			count[status]++
		})
	}
	open.Wait()
	if count[http.StatusOK] < 4 || count[http.StatusOK]+count[http.StatusServiceUnavailable] != 10 {
		t.Errorf("statuses %v, want 200 at least 4 times and else 503", count)
	}
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("%d requests were served within %s by 2 workers", count[http.StatusOK], took)
	}
	if got := b.Served(); got != int64(count[http.StatusOK]) {
		t.Errorf("Served() = %d, want %d", got, count[http.StatusOK])
	}
}

// The arrivals of a seed are the same in each run, at the rate that is wanted.
func TestTrafficIsOpenLoop(t *testing.T) {
	t.Parallel()
	b := backend(t, BackendOptions{Concurrency: 1000, ServiceTime: 300 * time.Millisecond}) // slower than the time between requests
	var first []time.Duration
	for range 2 {
		traffic := Traffic{Seed: 7, Timeout: 10 * time.Second, Rate: func(int, time.Duration) float64 { return 200 }}
		requests := traffic.Run(t.Context(), []Target{{Address: b.Address()}}, time.Second)
		if n := float64(len(requests)); math.Abs(n-200) > 60 {
			t.Errorf("%g requests in a second, want some 200", n)
		}
		at := map[time.Duration]bool{}
		for i := range requests {
			if requests[i].Outcome != Succeeded {
				t.Errorf("%+v", requests[i])
			}
			at[requests[i].At] = true
		}
		for _, a := range first {
			if !at[a] {
				t.Errorf("no request at %s in the second run", a)
			}
		}
		for a := range at {
			first = append(first, a)
		}
	}
}

func TestNeeded(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]float64{"all-1.25": 0, "all-1.25-drops": 0.36, "all-3-drops": 1 - 0.8/3} {
		for i := range Scenarios {
			if s := &Scenarios[i]; s.Name == name && math.Abs(s.needed()-want) > 1e-9 {
				t.Errorf("%s: %g is to be dropped, want %g", name, s.needed(), want)
			}
		}
	}
}

// A result is judged by what its requests show.
func TestJudge(t *testing.T) {
	t.Parallel()
	r := &runner{
		options:  &Options{Tick: time.Second, ReportInterval: time.Second, Warm: 10 * time.Second, Fault: 30 * time.Second, After: 10 * time.Second},
		scenario: &Scenario{Name: "refuse", Fault: Refuse},
	}
	f := &fleet{zoneOf: map[string]int{"bad": 0, "good": 1}}
	traffic := func(toBad func(n int, at time.Duration) bool) (requests []Request) {
		for n := range 5000 {
			q := Request{At: time.Duration(n) * 10 * time.Millisecond, Source: n % len(Zones), Upstream: "good"}
			if at := q.At - r.options.Warm; at >= 0 && at < r.options.Fault && toBad(n, at) {
				q.Upstream, q.Outcome, q.Flags = "bad", Failed, "UF"
			}
			requests = append(requests, q)
		}
		return requests
	}
	for _, tt := range []struct {
		name    string
		toBad   func(n int, at time.Duration) bool
		samples []sample
		want    []string // aims that are missed
	}{
		{"well", func(int, time.Duration) bool { return false }, []sample{{at: 20 * time.Second, ok: true}}, nil},
		{"left in time", func(_ int, at time.Duration) bool { return at < 3*time.Second }, []sample{{at: 20 * time.Second, ok: true}}, nil},
		{"a probe", func(n int, _ time.Duration) bool { return n%121 == 0 }, []sample{{at: 20 * time.Second, ok: true}}, nil},
		{"never left", func(n int, _ time.Duration) bool { return n%10 == 0 }, []sample{{at: 20 * time.Second, attention: []string{"x"}}}, []string{"third tick"}},
		{"never left, and nothing said", func(n int, _ time.Duration) bool { return n%10 == 0 }, []sample{{at: 20 * time.Second, ok: true}}, []string{"third tick", "in order"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			requests := traffic(tt.toBad)
			v := &Result{Isobar: r.system(requests, f)}
			v.Status, v.Misled = r.statuses(requests, tt.samples)
			var missed []string
			for _, a := range r.judge(v) {
				if !a.Met {
					missed = append(missed, a.Aim)
				}
			}
			if len(missed) != len(tt.want) {
				t.Fatalf("missed %q, want %q", missed, tt.want)
			}
			for i := range missed {
				if !strings.Contains(missed[i], tt.want[i]) {
					t.Errorf("missed %q, want %q", missed[i], tt.want[i])
				}
			}
		})
	}
}

// Less than Envoy alone by more than a point, beyond chance, is an aim missed.
func TestBesideEnvoyAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		isobar, alone float64
		of            int
		met           bool
	}{
		{0.99, 0.99, 4000, true}, {0.99, 0.5, 4000, true},
		{0.982, 0.99, 4000, true}, {0.97, 0.99, 4000, false},
		{0.785, 0.80, 4000, true}, {0.76, 0.80, 4000, false},
		{0.785, 0.80, 400_000, false}, {0.791, 0.80, 400_000, true},
	} {
		system := func(share float64) System {
			return System{During: share, LastThird: share, After: share, Later: share, Of: Parts{tt.of, tt.of, tt.of, tt.of}}
		}
		alone := system(tt.alone)
		for _, aim := range (&Result{Isobar: system(tt.isobar), Alone: &alone}).beside() {
			if aim.Met != tt.met {
				t.Errorf("%g of %d succeed, %g with Envoy alone: %s: met %v, want %v", tt.isobar, tt.of, tt.alone, aim.Aim, aim.Met, tt.met)
			}
		}
	}
}

func TestWithListener(t *testing.T) {
	t.Parallel()
	text, err := WithListener("static_resources:\n  listeners: []\n  clusters: []\n", "cluster: shop, timeout: 1s")
	if err != nil || !strings.Contains(text, "route: {cluster: shop, timeout: 1s}") || strings.Contains(text, "listeners: []") {
		t.Errorf("%v:\n%s", err, text)
	}
	if _, err := WithListener("static_resources:\n  clusters: []\n", "cluster: shop"); err == nil {
		t.Error("no error without a place for the listener")
	}
}
