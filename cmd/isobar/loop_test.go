package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
)

// counts is what became of requests.
type counts struct {
	mu      sync.Mutex
	landed  map[isobar.Locality]int
	dropped int
	other   []error
}

func (c *counts) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.landed, c.dropped, c.other = map[isobar.Locality]int{}, 0, nil
}

func (c *counts) add(l isobar.Locality, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.landed[l]++
	case strings.Contains(err.Error(), "dropped"):
		c.dropped++
	default:
		c.other = append(c.other, err)
	}
}

// total is how many requests have ended.
func (c *counts) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.dropped + len(c.other)
	for _, landed := range c.landed {
		n += landed
	}
	return n
}

// TestRealClientsDriveTheLoop: the load reports of real grpc-go xDS clients
// make Isobar split their traffic over two zones and drop what fits in neither,
// and the clients do both. Dropped requests stay demand, so that drops do not
// feed on themselves.
func TestRealClientsDriveTheLoop(t *testing.T) {
	zones := []isobar.Locality{isobar.MustLocality("us/a"), isobar.MustLocality("us/b")}
	// The backends take no time for a request, so what requests experience would soon show
	// that they serve more than is declared.
	p := newProcess(t, "  max_shed: 0.5\n  capacity_trust: declared\n", zones, []int{100, 50})
	p.start()
	p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	var seen counts
	seen.reset()
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	for i, c := range p.clients(zones[:1], 2) {
		gen := fleet.Poisson{
			Seed: uint64(i), Rate: func(time.Time) float64 { return 75 },
			Send: func(ctx context.Context, _ time.Time) {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
				defer cancel()
				address, err := c.Call(ctx)
				seen.add(p.places[address], err)
			},
			Refuse: func(time.Time, string) { seen.add(isobar.Locality{}, errors.New("too many open")) },
		}
		load.Go(func() { gen.Run(ctx) })
	}
	// 150 requests/s, of which 80 and 40 fit beneath the ceilings.
	p.await("drop", func(v admin.PlanView) bool {
		s := v.Services[0]
		return len(s.Sources) == 1 && s.Sources[0].Demand > 130 && s.Drop > 0.1 && published(s, "us/b") > 0.2
	})
	// A machine that is busy with other things delays requests and reports for a
	// while; drops that hid or raised demand would go on doing so.
	good, wrong := 0, []string(nil)
	for round := 0; good < 3; round++ {
		if round == 20 {
			t.Fatalf("no three rounds in a row were as they should be; the last: %q", wrong)
		}
		if wrong = seen.round(p, zones); len(wrong) == 0 {
			good++
		} else {
			good = 0
			t.Logf("round %d: %q", round, wrong)
		}
	}
	out := p.isobar("explain", "checkout", "--from", "us/a")
	for _, want := range []string{"us/a", "us/b", "ceiling"} {
		if !strings.Contains(out, want) {
			t.Errorf("explain does not speak of %s:\n%s", want, out)
		}
	}
}

// round holds what clients do with some hundred requests against what they are
// told, and tells what is wrong.
func (c *counts) round(p *process, zones []isobar.Locality) (wrong []string) {
	const requests = 450 // three seconds of them
	c.reset()
	for start := time.Now(); c.total() < requests && time.Since(start) < 20*time.Second; {
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // real clients: until so many requests have ended
	}
	v, err := p.plan()
	if err != nil {
		return []string{err.Error()}
	}
	s := v.Services[0]
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if d := s.Sources[0].Demand; d < 110 || d > 190 {
		complain("demand %.0f, want about 150: drops must neither hide nor raise it", d)
	}
	if n := c.total(); n < requests {
		complain("only %d requests have ended", n)
		return wrong
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a, b := float64(c.landed[zones[0]]), float64(c.landed[zones[1]])
	if drop := float64(c.dropped) / (a + b + float64(c.dropped)); math.Abs(drop-s.Drop) > 0.1 {
		complain("clients dropped %.2f, told were %.2f", drop, s.Drop)
	}
	if share := b / (a + b); math.Abs(share-published(s, "us/b")) > 0.1 {
		complain("clients sent %.2f to us/b, told were %.2f", share, published(s, "us/b"))
	}
	if len(c.other) > 0 {
		complain("%d requests failed, the first: %v", len(c.other), c.other[0])
	}
	return wrong
}

func published(s admin.ServiceView, l string) float64 {
	for _, share := range s.Sources[0].Shares {
		if share.Locality == isobar.MustLocality(l) {
			return share.Published
		}
	}
	return 0
}

// TestNACKShowsInClients: the text with which a client refuses an assignment
// stands in `isobar clients`.
func TestNACKShowsInClients(t *testing.T) {
	zone := isobar.MustLocality("us/a")
	p := newProcess(t, "", []isobar.Locality{zone}, nil)
	p.start()
	p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	conn, err := grpc.NewClient(p.xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	agent, err := fleet.NewAgent(fleet.AgentOptions{
		Conn: conn, ID: "picky", Cluster: "web", Locality: zone, Services: []string{"checkout"},
		Accept: func(*endpointv3.ClusterLoadAssignment) error { return errors.New("no taste for these weights") },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { agent.Run(ctx) })
	defer running.Wait()
	defer stop()
	out := ""
	for range 600 {
		if out = p.isobar("clients"); strings.Contains(out, "no taste for these weights") {
			break
		}
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // real processes: bounded polling
	}
	for _, want := range []string{"picky", "no taste for these weights", "0 of 1"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

// isobar runs a command against the process's admin API.
func (p *process) isobar(args ...string) string {
	p.t.Helper()
	var out, errs bytes.Buffer
	if err := run(p.t.Context(), append(args, "--admin", p.api), &out, &errs); err != nil {
		p.t.Errorf("isobar %s: %v %s", args[0], err, errs.String())
	}
	return out.String()
}
