package server_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet/client2017"
	"github.com/isobar-xds/isobar/internal/plan"
)

// oldFleet is a client of 2017 that does as it is told: it sends a demand where
// the newest assignment says, drops what it says, and reports both.
type oldFleet struct {
	t      *testing.T
	eds    *client2017.Endpoints
	load   *client2017.Load
	cancel context.CancelFunc

	mu       sync.Mutex
	demand   float64 // requests/s
	interval time.Duration
	last     client2017.Assignment
	wake     chan struct{} // it is asked for load
}

func (w *world) startOld(id, zone string, demand float64) *oldFleet {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	at := loc(zone)
	c := client2017.Client{Conn: w.conn, Node: client2017.Node{
		ID: id, Cluster: "web", Locality: &client2017.Locality{Region: at.Region, Zone: at.Zone},
		BuildVersion: "d362e791eb9e4efa8d87f6d878740e72dc8330ac/1.5.0/Clean/RELEASE",
	}}
	f := &oldFleet{t: w.t, cancel: cancel, demand: demand, wake: make(chan struct{}, 1)}
	var err error
	if f.eds, err = c.Endpoints(ctx, "checkout"); err != nil {
		w.t.Fatal(err)
	}
	if f.load, err = c.Load(ctx); err != nil {
		w.t.Fatal(err)
	}
	go f.follow()
	go f.asked()
	go f.report(ctx)
	return f
}

// ended tells whether a stream has only come to its end; anything else is a
// message that was not there in 2017.
func (f *oldFleet) ended(err error) bool {
	if err == nil {
		return false
	}
	if code := status.Code(err); code != codes.Canceled && code != codes.Unavailable {
		f.t.Errorf("the server said what no client of 2017 understands: %v", err)
	}
	return true
}

func (f *oldFleet) follow() {
	for {
		list, err := f.eds.Receive()
		if f.ended(err) || f.ended(f.eds.Accept()) {
			return
		}
		f.mu.Lock()
		for i := range list {
			f.last = list[i]
		}
		f.mu.Unlock()
	}
}

func (f *oldFleet) asked() {
	for {
		m, err := f.load.Receive()
		if f.ended(err) {
			return
		}
		if len(m.Clusters) != 1 || m.Clusters[0] != "checkout" {
			f.t.Errorf("asked for %v", m.Clusters)
		}
		f.mu.Lock()
		f.interval = time.Duration(m.Interval)
		f.mu.Unlock()
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// report counts from zero whenever it is asked, and once per interval after it.
func (f *oldFleet) report(ctx context.Context) {
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-due:
			if f.ended(f.load.Report(f.counted())) {
				return
			}
		}
		f.mu.Lock()
		due = time.After(f.interval)
		f.mu.Unlock()
	}
}

// counted is what it did in an interval.
func (f *oldFleet) counted() client2017.ClusterStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	requests := f.demand * f.interval.Seconds()
	dropped := requests * f.last.Drop() / 100
	out := client2017.ClusterStats{ClusterName: "checkout", Dropped: uint64(math.Round(dropped))}
	for zone, share := range f.shares() {
		at := loc(zone)
		out.Localities = append(out.Localities, client2017.LocalityStats{
			Locality:  client2017.Locality{Region: at.Region, Zone: at.Zone},
			Succeeded: uint64(math.Round((requests - dropped) * share)), InProgress: 20,
		})
	}
	return out
}

// shares is what part of its requests goes where. The caller holds the lock.
func (f *oldFleet) shares() map[string]float64 {
	out := map[string]float64{}
	total := 0.0
	for _, g := range f.last.Endpoints {
		if g.Priority != 0 || len(g.Endpoints) == 0 {
			continue
		}
		if g.Weight < 1 || g.Weight > 128 {
			f.t.Errorf("a weight of %d", g.Weight)
		}
		out[g.Locality.Region+"/"+g.Locality.Zone] += float64(g.Weight)
		total += float64(g.Weight)
	}
	for zone := range out {
		out[zone] /= total
	}
	return out
}

func (f *oldFleet) want(demand float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.demand = demand
}

// told returns shares and drop, percent, as the newest assignment has them.
func (f *oldFleet) told() (shares map[string]float64, drop float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shares(), f.last.Drop()
}

// planned is what the plan wants of the one source.
func planned(p *plan.Plan) map[string]float64 {
	s, _ := p.Service("checkout")
	out := map[string]float64{}
	for i := range s.Sites {
		out[s.Sites[i].Group.Locality.String()] = s.Result.Sources[0].Shares[i]
	}
	return out
}

// TestClientOf2017: a client that uses only the API of 2017 closes the loop.
// What it reports, without intervals or requests issued, moves its weights; a
// demand beyond all capacity reaches it as one fraction to drop; and what it
// drops stays demand.
func TestClientOf2017(t *testing.T) {
	cfg := configuration(t)
	cfg.XDS.Clients2017 = []string{"old-*"}
	cfg.Services[0].MaxShed = 0.9
	inWorld(t, cfg, func(w *world) {
		f := w.startOld("old-1", "us/a", 0)
		defer f.cancel()
		for _, step := range []struct {
			demand            float64
			homeLeast, atMost float64 // of its requests in its own zone, which carries 800
			drop              float64 // percent; all zones carry 3,200
		}{
			{400, 0.94, 1, 0}, // queues at home cost a little more than the way to the next zone
			{1200, 0.4, 800.0/1200 + 0.01, 0},
			{4000, 0.2, 0.3, 20},
			{400, 0.85, 1, 0},
		} {
			f.want(step.demand)
			p := w.settle(5 * time.Minute)
			noViolations(t, p)
			shares, drop := f.told()
			if home := shares["us/a"]; home < step.homeLeast || home > step.atMost || math.Abs(drop-step.drop) > 1 {
				t.Errorf("at %v requests/s: shares %v, drop %v%%; want %v to %v at home, a drop of %v%%",
					step.demand, shares, drop, step.homeLeast, step.atMost, step.drop)
			}
			for zone, share := range planned(p) {
				if math.Abs(share-shares[zone]) > 0.015 { // in weights of 1 to 128
					t.Errorf("at %v requests/s: %v of them go to %s, planned were %v", step.demand, shares[zone], zone, share)
				}
			}
		}
		var list admin.ClientList
		w.read("127.0.0.1", "/v1/clients", &list)
		if len(list.Clients) != 1 || list.Clients[0].APIVersion != "2017" || list.Clients[0].LRS == nil || !list.Clients[0].InSync {
			t.Errorf("clients %+v", list.Clients)
		}
	})
}
