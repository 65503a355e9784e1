package interop

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/fleet/client2017"
)

// old is a client of 2017 that reports a demand, less what it drops as told.
type old struct {
	t    *testing.T
	eds  *client2017.Endpoints
	load *client2017.Load

	mu       sync.Mutex
	last     client2017.Assignment
	refuses  bool
	received int
	refused  int
}

// Test2017 connects a client that knows nothing but the messages of 2017 to the
// listener for such clients.
//
//nolint:tparallel // the parts follow one another on the same stream
func Test2017(t *testing.T) {
	t.Parallel()
	s := startIsobar(t, `
services:
- name: split
  max_shed: 0.5
  localities:
  - {locality: us/a, max_rate: 40, endpoints: ["127.0.0.1:1"]}
  - {locality: us/b, max_rate: 20, endpoints: ["127.0.0.1:2"]}
`)
	seen.is(name2017, "-", "2017, EDS stream with its load reports")
	o := startOld(t, s.xds2017)
	for _, scenario := range []struct {
		column string
		run    func(*old, *isobar)
	}{{demand, (*old).reports}, {drops, (*old).drops}, {healthFilter, (*old).health}} {
		checkColumn(t, name2017, scenario.column, func(t *testing.T) {
			t.Helper()
			scenario.run(o, s.on(t))
		})
	}
	if t.Run(nack, func(t *testing.T) { o.refusal(s.on(t)) }) {
		seen.fact(name2017, "`/v1/clients` shows a NACK without text, for which EDS of 2017 has no field, and Isobar does not send the refused assignment again")
	}
}

func startOld(t *testing.T, address string) *old {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := client2017.Client{Conn: conn, Node: client2017.Node{
		ID: "old", Cluster: "web", Locality: &client2017.Locality{Region: "us", Zone: "a"},
		BuildVersion: "d362e791eb9e4efa8d87f6d878740e72dc8330ac/1.5.0/Clean/RELEASE",
	}}
	o := &old{t: t}
	if o.eds, err = c.Endpoints(ctx, "split"); err != nil {
		t.Fatal(err)
	}
	if o.load, err = c.Load(ctx); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(o.follow)
	running.Go(func() { o.report(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = conn.Close()
	})
	return o
}

// ended tells whether a stream has come to its end; an error that is none is a
// message that was not there in 2017.
func (o *old) ended(err error) bool {
	if err == nil {
		return false
	}
	if code := status.Code(err); code != codes.Canceled && code != codes.Unavailable {
		o.t.Errorf("the server said what no client of 2017 understands: %v", err)
	}
	return true
}

func (o *old) follow() {
	for {
		list, err := o.eds.Receive()
		if o.ended(err) {
			return
		}
		o.mu.Lock()
		o.received++
		answer := o.eds.Accept
		if o.refuses {
			o.refused++
			answer = o.eds.Reject
		} else if len(list) > 0 {
			o.last = list[0]
		}
		o.mu.Unlock()
		if o.ended(answer()) {
			return
		}
	}
}

// report counts from when it was asked, once per interval.
func (o *old) report(ctx context.Context) {
	m, err := o.load.Receive()
	if o.ended(err) {
		return
	}
	interval := time.Duration(m.Interval)
	if len(m.Clusters) != 1 || m.Clusters[0] != "split" || interval <= 0 {
		o.t.Errorf("asked for %v every %v", m.Clusters, interval)
		return
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if o.ended(o.load.Report(o.counted(interval))) {
				return
			}
		}
	}
}

// counted is what it did in an interval.
func (o *old) counted(interval time.Duration) client2017.ClusterStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	requests := callRate * interval.Seconds()
	dropped := requests * o.last.Drop() / 100
	out := client2017.ClusterStats{ClusterName: "split", Dropped: uint64(math.Round(dropped))}
	weights := uint32(0)
	for _, g := range o.last.Endpoints {
		weights += g.Weight
	}
	for _, g := range o.last.Endpoints {
		out.Localities = append(out.Localities, client2017.LocalityStats{
			Locality: g.Locality, Succeeded: uint64(math.Round((requests - dropped) * float64(g.Weight) / float64(max(1, weights)))),
		})
	}
	return out
}

func (o *old) told() (a client2017.Assignment, received int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last, o.received
}

// reports: what it reports becomes demand, without intervals or requests
// issued.
func (o *old) reports(s *isobar) {
	await(s.t, "measured demand", func() error {
		_, source, err := s.source("split")
		if err == nil && math.Abs(source.Demand-callRate) > 0.2*callRate {
			err = fmt.Errorf("demand %.0f/s", source.Demand)
		}
		return err
	})
	c, err := s.client("old")
	if err != nil || c.APIVersion != "2017" || c.LRS == nil || c.LRS.Rejected > 0 {
		s.t.Errorf("the server says of it: %v, %+v", err, c)
	}
}

// drops: what does not fit reaches it as one percentage, and what it drops
// stays demand.
func (o *old) drops(s *isobar) {
	await(s.t, "drop", func() error {
		service, source, err := s.source("split")
		if err != nil {
			return err
		}
		a, _ := o.told()
		if service.Drop < 0.35 || math.Abs(a.Drop()-100*service.Drop) > 1 {
			return fmt.Errorf("dropping %.2f, told %.1f%%", service.Drop, a.Drop())
		}
		if math.Abs(source.Demand-callRate) > 0.25*callRate {
			return fmt.Errorf("demand %.0f/s while dropping", source.Demand)
		}
		return nil
	})
}

// health: an endpoint that drains is not listed, since health was not looked at
// then.
func (o *old) health(s *isobar) {
	listed := func(want int) func() error {
		return func() error {
			a, _ := o.told()
			n := 0
			for _, g := range a.Endpoints {
				n += len(g.Endpoints)
			}
			if n != want {
				return fmt.Errorf("%d endpoints", n)
			}
			return nil
		}
	}
	await(s.t, "two endpoints", listed(2))
	s.health("split", "127.0.0.1:2", "draining")
	await(s.t, "one endpoint", listed(1))
	s.health("split", "127.0.0.1:2", "")
	await(s.t, "two endpoints again", listed(2))
}

// refusal: it shows, and the same content is not sent again and again.
func (o *old) refusal(s *isobar) {
	o.mu.Lock()
	o.refuses = true
	o.mu.Unlock()
	s.health("split", "127.0.0.1:2", "draining")
	await(s.t, "refusal in /v1/clients", func() error {
		c, err := s.client("old")
		if err == nil && c.Types["eds"].NACK == nil {
			err = errors.New("none")
		}
		return err
	})
	_, before := o.told()
	time.Sleep(3 * time.Second)             //nolint:forbidigo // real processes: what comes in three seconds
	if _, now := o.told(); now > before+3 { // three ticks
		s.t.Errorf("%d responses in three seconds after a refusal", now-before)
	}
}
