package fleet_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

func TestAgentFollowsWeightsAndReports(t *testing.T) {
	for _, kind := range []fleet.AgentKind{fleet.KindGRPC, fleet.KindEnvoy} {
		opts := fleet.AgentOptions{Kind: kind, Demand: rate(101), Utilization: func(string, isobar.Locality) float64 { return 0.5 }}
		inBubble(t, opts, func(t *testing.T, s *xdsServer, a *fleet.Agent) {
			t.Helper()
			s.set(t, "checkout", withDrop(assignment(group(zoneA, 0, 7000, up), group(zoneB, 0, 3000, up)), 10))
			pass(100 * time.Second)
			near(t, "share of b", a.Shares("checkout")[zoneB], 0.3, 1e-9)

			_, reports := s.seen()
			if len(reports) != 21 { // the opening message and one every 5 s
				t.Fatalf("%d messages on the load stream, want 21", len(reports))
			}
			issued, dropped, total := map[string]float64{}, 0.0, 0.0
			for _, r := range reports[1:] {
				if (r.GetNode() != nil) != (kind == fleet.KindEnvoy) {
					t.Errorf("kind %d: node in a later message: %v", kind, r.GetNode())
				}
				for _, cs := range r.GetClusterStats() {
					if got := cs.GetLoadReportInterval().AsDuration(); got != 5*time.Second {
						t.Errorf("measured interval %v", got)
					}
					total += float64(cs.GetTotalDroppedRequests())
					for _, d := range cs.GetDroppedRequests() {
						dropped += float64(d.GetDroppedCount())
					}
					for _, ls := range cs.GetUpstreamLocalityStats() {
						issued[ls.GetLocality().GetZone()] += float64(ls.GetTotalIssuedRequests())
						u := ls.GetApplicationUtilization()
						near(t, "utilization", u.GetTotalMetricValue()/float64(u.GetNumRequestsFinishedWithMetric()), 0.5, 1e-9)
					}
				}
			}
			near(t, "issued to a", issued["a"], 101*100*0.9*0.7, 1)
			near(t, "issued to b", issued["b"], 101*100*0.9*0.3, 1)
			near(t, "dropped", dropped, 101*100*0.1, 1)
			if total != dropped {
				t.Errorf("kind %d: the total of drops is %v, those of categories %v", kind, total, dropped)
			}
		})
	}
}

func TestAgentFailsOver(t *testing.T) {
	var fates sync.Map
	opts := fleet.AgentOptions{
		Demand: rate(100),
		Landing: func(_ string, l isobar.Locality) fleet.Fate {
			if f, ok := fates.Load(l); ok {
				return f.(fleet.Fate)
			}
			return fleet.Served
		},
	}
	inBubble(t, opts, func(t *testing.T, s *xdsServer, a *fleet.Agent) {
		t.Helper()
		s.set(t, "checkout", assignment(group(zoneA, 0, 5000, up), group(zoneB, 0, 5000, up, down), group(zoneC, 1, 1, up)))
		pass(10 * time.Second)
		near(t, "share of a", a.Shares("checkout")[zoneA], 0.5, 1e-9)
		fates.Store(zoneA, fleet.Unconnected)
		near(t, "share of b alone", a.Shares("checkout")[zoneB], 1, 1e-9)
		fates.Store(zoneB, fleet.Unconnected)
		near(t, "share of the lower tier", a.Shares("checkout")[zoneC], 1, 1e-9)
		before := a.Totals("checkout")
		fates.Store(zoneC, fleet.Failed)
		pass(10 * time.Second)
		after := a.Totals("checkout")
		near(t, "errors", after.Errors-before.Errors, 1000, 15)
		near(t, "landed in c", after.Sites[zoneC]-before.Sites[zoneC], 1000, 15)
	})
}

// Envoy counts refused connections as errors that were never issued.
func TestEnvoyAgentReportsRefusedConnections(t *testing.T) {
	opts := fleet.AgentOptions{
		Kind: fleet.KindEnvoy, Demand: rate(100),
		Landing: func(_ string, l isobar.Locality) fleet.Fate {
			if l == zoneA {
				return fleet.Refused
			}
			return fleet.Served
		},
	}
	inBubble(t, opts, func(t *testing.T, s *xdsServer, _ *fleet.Agent) {
		t.Helper()
		s.set(t, "checkout", assignment(group(zoneA, 0, 5000, up), group(zoneB, 0, 5000, up)))
		pass(100 * time.Second)
		_, reports := s.seen()
		issued, errors := map[string]uint64{}, map[string]uint64{}
		for _, r := range reports {
			for _, cs := range r.GetClusterStats() {
				for _, ls := range cs.GetUpstreamLocalityStats() {
					zone := ls.GetLocality().GetZone()
					issued[zone] += ls.GetTotalIssuedRequests()
					errors[zone] += ls.GetTotalErrorRequests()
					if zone == "a" && ls.GetTotalSuccessfulRequests()+ls.GetTotalRequestsInProgress() > 0 {
						t.Errorf("successes or requests in progress where connections are refused: %v", ls)
					}
				}
			}
		}
		if issued["a"] != 0 || errors["b"] != 0 {
			t.Errorf("issued to a: %d, errors of b: %d, want none", issued["a"], errors["b"])
		}
		near(t, "errors of a", float64(errors["a"]), 5000, 30)
		near(t, "issued to b", float64(issued["b"]), 5000, 30)
	})
}

// Envoy ignores an update in which only the drops changed; any other change makes
// it read the drops, too.
func TestEnvoyAgentIgnoresUpdatesOfDropsAlone(t *testing.T) {
	for kind, want := range map[fleet.AgentKind]float64{fleet.KindEnvoy: 0, fleet.KindGRPC: 0.5} {
		inBubble(t, fleet.AgentOptions{Kind: kind, Demand: rate(100)}, func(t *testing.T, s *xdsServer, a *fleet.Agent) {
			t.Helper()
			dropped := func() float64 {
				before := a.Totals("checkout").Dropped
				pass(10 * time.Second)
				return (a.Totals("checkout").Dropped - before) / 1000
			}
			s.set(t, "checkout", assignment(group(zoneA, 0, 5000, up)))
			pass(time.Second)
			s.set(t, "checkout", withDrop(assignment(group(zoneA, 0, 5000, up)), 50))
			pass(time.Second)
			near(t, "dropped after a change of drops alone", dropped(), want, 0.01)
			if a.NACKs() > 0 {
				t.Error("the update is refused")
			}
			s.set(t, "checkout", withDrop(assignment(group(zoneA, 0, 5001, up)), 50))
			pass(time.Second)
			near(t, "dropped after a change of a weight, too", dropped(), 0.5, 0.01)
		})
	}
}

func TestAgentDelays(t *testing.T) {
	opts := fleet.AgentOptions{Demand: rate(100), PushDelay: 7 * time.Second, ReportDelay: 12 * time.Second}
	inBubble(t, opts, func(t *testing.T, s *xdsServer, a *fleet.Agent) {
		t.Helper()
		s.set(t, "checkout", assignment(group(zoneA, 0, 1, up)))
		pass(6 * time.Second)
		if a.Assignment("checkout") != nil {
			t.Error("in use before the push delay")
		}
		if err := a.WaitAssigned(t.Context(), "checkout", nil); err != nil {
			t.Fatal(err)
		}
		if _, reports := s.seen(); len(reports) != 1 {
			t.Errorf("%d messages before the report delay", len(reports))
		}
		pass(15*time.Second + 100*time.Millisecond)
		// Windows end at 5, 10, 15, 20 s; at 22 s those of 5 and 10 have come.
		if _, reports := s.seen(); len(reports) != 3 {
			t.Errorf("%d messages at 22 s, want 3", len(reports))
		}
		near(t, "unassigned", a.Totals("checkout").Unassigned, 700, 15)
	})
}

func TestAgentNACKs(t *testing.T) {
	cases := map[string]struct {
		cla  *endpointv3.ClusterLoadAssignment
		want string
	}{
		"gap":            {assignment(group(zoneA, 1, 1, up)), `assignment "checkout": priority 0 is missing`},
		"weight 0":       {assignment(group(zoneA, 0, 0, up)), `assignment "checkout": r/a: locality weight 0 or unset`},
		"locality twice": {assignment(group(zoneA, 0, 1, up), group(zoneA, 0, 1)), `assignment "checkout": r/a: twice in priority 0`},
		"address twice":  {assignment(group(zoneA, 0, 1, up), group(zoneA, 1, 1, up)), `assignment "checkout": r/a: address 127.0.0.1:9700 is listed twice`},
		"weights":        {assignment(group(zoneA, 0, math.MaxUint32, up), group(zoneB, 0, 1)), `assignment "checkout": priority 0: locality weights sum to 4294967296`},
		"drop":           {withDrop(assignment(group(zoneA, 0, 1, up)), 101), `assignment "checkout": drop category overload: bad fraction`},
		"asked to":       {assignment(group(zoneC, 0, 1, up)), `assignment "checkout": not that one`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			opts := fleet.AgentOptions{Silent: true, Endpoints: true, Accept: func(cla *endpointv3.ClusterLoadAssignment) error {
				if cla.GetEndpoints()[0].GetLocality().GetZone() == "c" {
					return errors.New("not that one")
				}
				return nil
			}}
			inBubble(t, opts, func(t *testing.T, s *xdsServer, a *fleet.Agent) {
				t.Helper()
				s.set(t, "checkout", assignment(group(zoneB, 0, 1, up)))
				pass(time.Second)
				good := a.Version("checkout")
				s.set(t, "checkout", c.cla)
				pass(time.Second)
				nacks, reports := s.seen()
				if len(nacks) != 1 || nacks[0] != c.want {
					t.Errorf("NACKs %q, want one: %q", nacks, c.want)
				}
				if a.Version("checkout") != good || a.NACKs() != 1 || a.Shares("checkout")[zoneB] != 1 {
					t.Error("the good assignment is not in use any more")
				}
				if len(reports) != 0 {
					t.Error("a silent agent opened the load stream")
				}
			})
		})
	}
}

func TestAgentMisconfigured(t *testing.T) {
	cla := assignment(group(zoneA, 0, 9999, up), group(zoneB, 0, 1, up, up, up))
	inBubble(t, fleet.AgentOptions{Split: fleet.ByEndpoints, Demand: rate(10)}, func(t *testing.T, s *xdsServer, a *fleet.Agent) {
		t.Helper()
		s.set(t, "checkout", cla)
		pass(time.Second)
		near(t, "share by endpoints", a.Shares("checkout")[zoneB], 0.75, 1e-9)
	})
	inBubble(t, fleet.AgentOptions{Split: fleet.OwnLocality(zoneC), Demand: rate(10)}, func(t *testing.T, s *xdsServer, a *fleet.Agent) {
		t.Helper()
		s.set(t, "checkout", cla)
		pass(time.Second)
		near(t, "share of its own", a.Shares("checkout")[zoneC], 1, 1e-9)
	})
}

func TestEnvoySplitSpillsByHealth(t *testing.T) {
	inBubble(t, fleet.AgentOptions{Kind: fleet.KindEnvoy, Demand: rate(10)}, func(t *testing.T, s *xdsServer, a *fleet.Agent) {
		t.Helper()
		// Priority 0 is half healthy: 140% * 50% = 70% of the load; within it
		// the weight of b shrinks to 70% x 1000 as well.
		s.set(t, "checkout", assignment(
			group(zoneA, 0, 1000, up), group(zoneB, 0, 1000, up, down, down), group(zoneC, 1, 1, up)))
		pass(time.Second)
		shares := a.Shares("checkout")
		weightB := 1.4 / 3
		near(t, "a", shares[zoneA], 0.7/(1+weightB), 1e-9)
		near(t, "b", shares[zoneB], 0.7*weightB/(1+weightB), 1e-9)
		near(t, "c", shares[zoneC], 0.3, 1e-9)
	})
}

func TestAgentReconnects(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newXDSServer()
		s.set(t, "checkout", assignment(group(zoneA, 0, 1, up)))
		conn, stop := overBufconn(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		a, err := fleet.NewAgent(fleet.AgentOptions{Conn: conn, Services: []string{"checkout"}, Demand: rate(10)})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.Run(ctx)
		}()
		pass(time.Second)
		stop()
		pass(10 * time.Second)
		near(t, "share without a server", a.Shares("checkout")[zoneA], 1, 1e-9)
		cancel()
		<-done
	})
}

func TestNewAgentRefusesBadOptions(t *testing.T) {
	if _, err := fleet.NewAgent(fleet.AgentOptions{}); err == nil {
		t.Error("no error without a connection")
	}
}
