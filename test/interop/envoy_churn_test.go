package interop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/fleet/envoyloop"
)

// churnSize is how large a fleet is, and for how long it changes.
type churnSize struct {
	envoys, services int
	length           time.Duration
	rate             float64       // requests/s of each Envoy
	every            time.Duration // a rollout begins so often
	grace            time.Duration // from the removal of an endpoint to the end of its process
	kills            int           // of the server
	down             time.Duration // the server is away after each
}

func churnSizes() churnSize {
	if interopAll() || *churnFor > 0 {
		return churnSize{
			envoys: 30, services: 200, length: cmp.Or(*churnFor, 10*time.Minute), rate: 10, every: time.Second,
			grace: 20 * time.Second, kills: 2, down: 3 * time.Second,
		}
	}
	return churnSize{
		envoys: 4, services: 20, length: 30 * time.Second, rate: 25, every: 400 * time.Millisecond,
		grace: 8 * time.Second, kills: 1, down: time.Second,
	}
}

// Endpoints come and go, a zone is lost and comes back, the server is killed and
// starts again: no request fails that a healthy endpoint could have served, and
// in the end all Envoys have exactly the endpoints that are there.
func TestEnvoyChurn(t *testing.T) {
	t.Parallel()
	size := churnSizes()
	f := startChurn(t, size)
	targets := f.startProxies()
	start := time.Now()
	f.start = start
	ctx, cancel := context.WithTimeout(t.Context(), size.length)
	defer cancel()
	var changing sync.WaitGroup
	changing.Go(func() { f.rollouts(ctx) })
	changing.Go(func() { f.loseZone(ctx, size.length*2/5, size.length*3/5) })
	changing.Go(func() { f.kill(ctx) })
	traffic := envoyloop.Traffic{
		Seed: 1, Timeout: 10 * time.Second,
		Rate:    func(int, time.Duration) float64 { return size.rate },
		Service: func(rng *rand.Rand) string { return f.services[rng.IntN(len(f.services))].name },
	}
	requests := traffic.Run(t.Context(), targets, size.length)
	changing.Wait()
	f.judge(requests)
	f.converge()
	if t.Failed() {
		return
	}
	t.Logf("%d Envoys, %d services, %s: %d requests, %d writes, %d rollouts, %d kills of the server; %d requests were lost with the zone",
		size.envoys, size.services, size.length, len(requests), f.writes, f.rolled, size.kills, f.lost)
}

// churnZones are where the endpoints and the Envoys are.
var churnZones = []string{"us/a", "us/b", "eu/a"}

// lostZone is the index of the zone that is lost for a time.
const lostZone = 1

// churn is a fleet whose endpoints change.
type churn struct {
	t        *testing.T
	size     churnSize
	server   *isobar
	services []*churnService
	proxies  []*envoyloop.Proxy
	start    time.Time
	serving  sync.Mutex // one process of the server at a time; held while it is down

	mu      sync.Mutex
	killed  map[string]time.Duration // addresses of the lost zone, and from when on Envoys knew, since the start
	stopped []*envoyloop.Backend
	writes  int
	rolled  int
	lost    int
}

type churnService struct {
	name string
	mu   sync.Mutex // held for the whole of a rollout
	pods []pod
}

type pod struct {
	*envoyloop.Backend

	zone     int
	draining bool
}

// startChurn starts the endpoints and the server.
func startChurn(t *testing.T, size churnSize) *churn {
	t.Helper()
	f := &churn{t: t, size: size, killed: map[string]time.Duration{}}
	t.Cleanup(func() {
		for _, s := range f.services {
			for _, p := range s.pods {
				_ = p.Close()
			}
		}
		for _, b := range f.stopped {
			_ = b.Close()
		}
	})
	for i := range size.services {
		s := &churnService{name: fmt.Sprintf("service-%03d", i)}
		for zone := range churnZones {
			s.pods = append(s.pods, f.pod(zone), f.pod(zone))
		}
		f.services = append(f.services, s)
	}
	f.server = startIsobar(t, "services: []\n")
	f.publishAll(t.Context())
	return f
}

func (f *churn) pod(zone int) pod {
	b, err := envoyloop.StartBackend(envoyloop.BackendOptions{
		Address: "127.0.0.1:0", Concurrency: 64, ServiceTime: 5 * time.Millisecond, CloseEvery: 2,
	})
	if err != nil {
		f.t.Fatal(err) // in other goroutines than the test's this ends the goroutine
	}
	return pod{Backend: b, zone: zone}
}

// object is a service as the admin API takes it.
func (s *churnService) object() map[string]any {
	zones := make([][]map[string]string, len(churnZones))
	for _, p := range s.pods {
		endpoint := map[string]string{"address": p.Address()}
		if p.draining {
			endpoint["health"] = "draining"
		}
		zones[p.zone] = append(zones[p.zone], endpoint)
	}
	localities := []map[string]any{}
	for z, endpoints := range zones {
		if len(endpoints) > 0 {
			localities = append(localities, map[string]any{"locality": churnZones[z], "max_rate": 1000, "endpoints": endpoints})
		}
	}
	return map[string]any{"name": s.name, "localities": localities}
}

// write puts a value until the server takes it: it may be away.
func (f *churn) write(ctx context.Context, path string, v any) bool {
	body, err := json.Marshal(v)
	if err != nil {
		f.t.Error(err)
		return false
	}
	for tries := 0; ; tries++ {
		f.serving.Lock() // a controller would try again while the server is away
		err := f.put(path, body)
		f.serving.Unlock()
		if err == nil {
			f.mu.Lock()
			f.writes++
			f.mu.Unlock()
			return true
		}
		if tries == 50 || ctx.Err() != nil {
			f.t.Errorf("PUT %s: %v", path, err)
			return false
		}
		<-time.After(100 * time.Millisecond)
	}
}

func (f *churn) put(path string, body []byte) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, "http://"+f.server.api+path, strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s", resp.Status)
	}
	return nil
}

// publishAll writes all services in one request; the caller holds their locks.
func (f *churn) publishAll(ctx context.Context) bool {
	objects := make([]map[string]any, 0, len(f.services))
	for _, s := range f.services {
		objects = append(objects, s.object())
	}
	return f.write(ctx, "/v1/services", objects)
}

// startProxies starts the Envoys and waits until each has all services.
func (f *churn) startProxies() []envoyloop.Target {
	t := f.t
	t.Helper()
	path := envoyBinary(t, envoy.Newest)
	var mu sync.Mutex
	var starting sync.WaitGroup
	limit := make(chan struct{}, 4)
	for i := range f.size.envoys {
		starting.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			zone := i % len(churnZones)
			text, err := envoyloop.WithListener(envoyBootstrap(t, "--server", f.server.xds, "--cluster", "client", "--locality", churnZones[zone],
				"--node-id", fmt.Sprintf("envoy-%d", i)), "cluster_header: "+envoyloop.ServiceHeader+", timeout: 5s")
			if err != nil {
				t.Error(err)
				return
			}
			p, err := envoyloop.StartProxy(t.Context(), envoy.Config{Path: path, Bootstrap: []byte(text), Dir: t.TempDir()}, zone)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(p.Kill)
			mu.Lock()
			defer mu.Unlock()
			f.proxies = append(f.proxies, p)
		})
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	f.converge()
	targets := make([]envoyloop.Target, 0, len(f.proxies))
	for _, p := range f.proxies {
		targets = append(targets, p.Target)
	}
	return targets
}

// rollouts replaces the endpoints of services, one service after the other, and
// lets each rollout take its time.
func (f *churn) rollouts(ctx context.Context) {
	rng := rand.New(rand.NewPCG(2, 0))
	ticker := time.NewTicker(f.size.every)
	defer ticker.Stop()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s := f.services[rng.IntN(len(f.services))]
			if s.mu.TryLock() {
				running.Go(func() {
					defer s.mu.Unlock()
					f.rollout(ctx, s)
				})
			}
		}
	}
}

// rollout adds an endpoint for each that is there, drains the old ones, removes
// them, and ends their processes when the time of grace has passed.
func (f *churn) rollout(ctx context.Context, s *churnService) {
	old := len(s.pods)
	for _, p := range s.pods[:old] {
		s.pods = append(s.pods, f.pod(p.zone))
	}
	path := "/v1/services/" + s.name
	if !f.write(ctx, path, s.object()) {
		return
	}
	for i := range old {
		s.pods[i].draining = true
	}
	if !f.write(ctx, path, s.object()) {
		return
	}
	<-time.After(f.size.every)
	gone := slices.Clone(s.pods[:old])
	s.pods = slices.Delete(s.pods, 0, old)
	written := f.write(ctx, path, s.object())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rolled++
	for _, p := range gone {
		f.stopped = append(f.stopped, p.Backend)
		if written {
			time.AfterFunc(f.size.grace, func() { _ = p.Close() })
		}
	}
}

// loseZone kills all endpoints of a zone at once and tells the server; later
// there are new ones.
func (f *churn) loseZone(ctx context.Context, at, until time.Duration) {
	if f.sleep(ctx, at) {
		f.killZone(ctx)
	}
	if f.sleep(ctx, until) {
		f.lockAll()
		defer f.unlockAll()
		for _, s := range f.services {
			s.pods = append(s.pods, f.pod(lostZone), f.pod(lostZone))
		}
		f.publishAll(ctx)
	}
}

func (f *churn) killZone(ctx context.Context) {
	f.lockAll()
	defer f.unlockAll()
	var dead []pod
	for _, s := range f.services {
		s.pods = slices.DeleteFunc(s.pods, func(p pod) bool {
			if p.zone == lostZone {
				dead = append(dead, p)
			}
			return p.zone == lostZone
		})
	}
	for _, p := range dead {
		_ = p.Close()
	}
	f.publishAll(ctx)
	known := f.acknowledged()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range dead {
		f.killed[p.Address()] = known
	}
}

// passWorkers sends requests on connections of their own through every Envoy. An Envoy
// acknowledges once its main thread has an update; on a busy machine its workers get it
// later, and before they answer what comes then.
func (f *churn) passWorkers() {
	const connections = 8 // an Envoy has a worker for each core
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	var all sync.WaitGroup
	for _, p := range f.proxies {
		for range connections {
			all.Go(func() {
				req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, "http://"+p.Address+"/", http.NoBody)
				if err != nil {
					f.t.Error(err)
					return
				}
				req.Header.Set(envoyloop.ServiceHeader, f.services[0].name)
				if resp, err := client.Do(req); err == nil { // its own requests say how it answers
					_ = resp.Body.Close()
				}
			})
		}
	}
	all.Wait()
}

// acknowledged waits until all Envoys have accepted what was written, and returns
// the time since the start from which on all their workers have it.
func (f *churn) acknowledged() time.Duration {
	const limit = 20 * time.Second
	deadline := time.After(limit)
	for {
		var status admin.Status
		if err := f.server.get("/v1/status", &status); err == nil && status.Clients.InSync == f.size.envoys && status.Clients.Total == f.size.envoys {
			f.passWorkers()
			return time.Since(f.start) + 500*time.Millisecond
		}
		select {
		case <-deadline:
			f.t.Errorf("not all Envoys accepted the loss of a zone within %s", limit)
			return time.Since(f.start)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// kill kills the server and starts it again after a while, evenly over the time.
func (f *churn) kill(ctx context.Context) {
	for i := range f.size.kills {
		if !f.sleep(ctx, f.size.length*time.Duration(i+1)/time.Duration(f.size.kills+1)) {
			return
		}
		f.restart()
	}
}

func (f *churn) restart() {
	f.serving.Lock()
	defer f.serving.Unlock()
	f.server.kill()
	<-time.After(f.size.down)
	f.server.run()
}

// sleep waits until a time after the start, and reports whether the context lasts.
func (f *churn) sleep(ctx context.Context, at time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Until(f.start.Add(at))):
		return true
	}
}

func (f *churn) lockAll() {
	for _, s := range f.services {
		s.mu.Lock()
	}
}

func (f *churn) unlockAll() {
	for _, s := range f.services {
		s.mu.Unlock()
	}
}

// judge reports requests that failed though a healthy endpoint could have served them.
func (f *churn) judge(requests []envoyloop.Request) {
	f.t.Helper()
	if want := f.size.rate * float64(f.size.envoys) * f.size.length.Seconds() * 0.9; float64(len(requests)) < want {
		f.t.Errorf("%d requests were sent, want %.0f", len(requests), want)
	}
	failed, kinds := 0, map[string]int{}
	for i := range requests {
		q := &requests[i]
		if q.Outcome == envoyloop.Succeeded {
			continue
		}
		if known, dead := f.killed[q.Upstream]; dead && q.At < known {
			f.lost++
			continue
		}
		kinds[fmt.Sprintf("status %d, flags %q", q.Status, q.Flags)]++
		if failed++; failed <= 20 {
			f.t.Errorf("after %s a request from %s for %s to %q failed: status %d, flags %s, after %s", q.At.Round(time.Millisecond),
				churnZones[q.Source], q.Service, q.Upstream, q.Status, q.Flags, q.Took.Round(time.Millisecond))
		}
	}
	if failed > 0 {
		f.t.Errorf("%d of %d requests failed that a healthy endpoint could have served: %v", failed, len(requests), kinds)
	}
}

// converge waits until every Envoy has exactly the endpoints that there are.
func (f *churn) converge() {
	f.t.Helper()
	want := map[string]bool{}
	for _, s := range f.services {
		for _, p := range s.pods {
			want[s.name+"::"+p.Address()] = true
		}
	}
	for _, p := range f.proxies {
		await(f.t, "endpoints", func() error {
			page, err := p.Get(f.t.Context(), "/clusters")
			if err != nil {
				return err
			}
			got := map[string]bool{}
			for line := range strings.Lines(string(page)) {
				if strings.HasPrefix(line, "service-") && strings.Contains(line, "::weight::") {
					name, _, _ := strings.Cut(line, "::weight::")
					got[name] = true
				}
			}
			if !maps.Equal(got, want) {
				return fmt.Errorf("an Envoy in %s has %d endpoints, want %d (or others)", churnZones[p.Source], len(got), len(want))
			}
			return nil
		})
	}
}
