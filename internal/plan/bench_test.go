package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/capacity"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/plan"
)

// big is a fleet of n services of ten localities with ten endpoints each, and
// ten sources that send to every one.
func big(b *testing.B, n int) (*isobar.Topology, func(tick int) *load.Snapshot) {
	b.Helper()
	network, err := isobar.NewNetwork(nil)
	if err != nil {
		b.Fatal(err)
	}
	var zones []isobar.Locality
	for r := range 5 {
		for z := range 2 {
			zones = append(zones, isobar.Locality{Region: fmt.Sprintf("r%d", r), Zone: fmt.Sprintf("z%d", z)})
		}
	}
	top := &isobar.Topology{Network: network, Revision: 1}
	for s := range n {
		svc := isobar.Service{Name: fmt.Sprintf("service-%04d", s)}
		for l, z := range zones {
			sl := isobar.ServiceLocality{Locality: z, MaxRate: 1000, Concurrency: 20}
			for e := range 10 {
				sl.Endpoints = append(sl.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d:80", s%250, l, e+1)})
			}
			svc.Localities = append(svc.Localities, sl)
		}
		top.Services = append(top.Services, svc)
	}
	top.Normalize()
	return top, func(tick int) *load.Snapshot {
		snap := &load.Snapshot{At: t0.Add(time.Duration(tick) * 5 * time.Second)}
		for s := range top.Services {
			sl := load.ServiceLoad{Name: top.Services[s].Name, Coverage: 1, Covered: true}
			for l, z := range zones {
				rate := 300 + 200*float64((s+l)%4)
				if s%100 == tick%100 { // one service in a hundred changes
					rate *= 1.3
				}
				sl.Sources = append(sl.Sources, load.SourceLoad{Source: z, Demand: rate, Raw: rate, Nodes: 3})
			}
			snap.Services = append(snap.Services, sl)
		}
		return snap
	}
}

// BenchmarkTick is one decision over 1,000 services, of which 1% changed.
func BenchmarkTick(b *testing.B) {
	top, snapshot := big(b, 1000)
	prev := mustNext(b, plan.Input{Now: t0, Trigger: assign.Tick, Topology: top, Load: snapshot(0), Version: 1})
	b.ReportAllocs()
	tick := 0
	for b.Loop() {
		tick++
		prev = mustNext(b, plan.Input{
			Now: t0.Add(time.Duration(tick) * 5 * time.Second), Trigger: assign.Tick, Topology: top,
			Load: snapshot(tick), Previous: prev, Version: prev.Version + 1,
		})
	}
}

// BenchmarkTickTrust is one decision over 1,000 services of ten localities with ten
// endpoints each, from the reports of a client in each locality, of which 1% changed: by
// declarations and by what requests tell, and where no client tells of requests in progress.
func BenchmarkTickTrust(b *testing.B) {
	for _, x := range []struct {
		name  string
		trust isobar.CapacityTrust
		mute  bool
	}{{"mute", isobar.TrustDeclared, true}, {"declared", isobar.TrustDeclared, false}, {"observed", isobar.TrustObserved, false}} {
		b.Run(x.name, func(b *testing.B) {
			top, snapshot := big(b, 1000)
			for i := range top.Services {
				top.Services[i].CapacityTrust = x.trust
			}
			decider := plan.NewDecider(interval, nil, t0)
			turn := &plan.Turn{Now: t0, Interval: interval, Topology: top, Health: health.NewTable(nil), Version: 1}
			var err error
			if turn.Previous, err = decider.Reapply(turn); err != nil {
				b.Fatal(err)
			}
			tick := 0
			next := func() {
				tick++
				turn.Now, turn.Version = t0.Add(time.Duration(tick)*interval), turn.Version+1
				turn.Windows = clientWindows(turn.Previous, snapshot(tick), turn.Now, x.mute)
				b.StartTimer()
				if turn.Previous, err = decider.Tick(turn); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
			}
			for range 20 {
				next()
			}
			b.ResetTimer()
			for range b.N {
				next()
			}
		})
	}
}

// clientWindows is what a client in each locality reports that sends the demand of a
// snapshot to where a plan wants it. Requests take 20 ms, and wait where it is full.
func clientWindows(p *plan.Plan, demand *load.Snapshot, now time.Time, mute bool) []load.StreamWindow {
	var out []load.StreamWindow
	for i := range demand.Services {
		sources := demand.Services[i].Sources
		rates, sums := make([][]float64, len(sources)), make([]float64, len(sources))
		for j := range sources {
			if len(out) <= j {
				out = append(out, load.StreamWindow{
					Stream: load.StreamID(j + 1), Opened: t0, Node: load.Node{ID: "n", Cluster: "web", Locality: sources[j].Source, Agent: load.AgentEnvoy},
					Reports: []load.Report{{Arrived: now}},
				})
			}
			rates[j] = make([]float64, len(sources))
			if a := p.Assignment(demand.Services[i].Name, sources[j].Source); a != nil {
				for k := range sources {
					rates[j][k] = sources[j].Demand * a.Share(sources[k].Source)
					sums[k] += rates[j][k]
				}
			}
		}
		for j := range sources {
			sr := load.ServiceReport{Service: demand.Services[i].Name, Interval: interval}
			for k, rate := range rates[j] {
				n := uint64(rate * interval.Seconds())
				if n == 0 {
					continue
				}
				lr := load.LocalityReport{Locality: &sources[k].Source, Issued: n, HasIssued: true, Succeeded: n}
				if !mute {
					way := 0.0
					if j != k {
						way = isobar.SameRegionMS / 1000 // distances between regions are not known here, and such requests tell nothing
					}
					lr.InProgress = uint32(0.5 + rate/sums[k]*capacity.Expected(sums[k], 1000, 0.02, 10) + rate*way)
				}
				sr.Localities = append(sr.Localities, lr)
			}
			out[j].Reports[0].Services = append(out[j].Reports[0].Services, sr)
		}
	}
	return out
}

// BenchmarkReapply carries 1,000 services over to a changed health.
func BenchmarkReapply(b *testing.B) {
	top, snapshot := big(b, 1000)
	prev := mustNext(b, plan.Input{Now: t0, Trigger: assign.Tick, Topology: top, Load: snapshot(0), Version: 1})
	b.ReportAllocs()
	for b.Loop() {
		prev = mustNext(b, plan.Input{Now: t0, Trigger: assign.Reapply, Topology: top, Previous: prev, Version: prev.Version + 1})
	}
}

// BenchmarkSave turns a plan of 1,000 services into what is kept on disk.
func BenchmarkSave(b *testing.B) {
	top, snapshot := big(b, 1000)
	p := mustNext(b, plan.Input{Now: t0, Trigger: assign.Tick, Topology: top, Load: snapshot(0), Version: 1})
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		saved := p.Save()
		data, err := saved.AppendJSON(make([]byte, 0, size+size/8))
		if err != nil {
			b.Fatal(err)
		}
		size = len(data)
		b.SetBytes(int64(size))
	}
}

// BenchmarkShare encodes plans of 1,000 services, each with new decisions, for other replicas.
func BenchmarkShare(b *testing.B) {
	top, snapshot := big(b, 1000)
	var plans []*plan.Plan
	var prev *plan.Plan
	for tick := range 2 {
		prev = mustNext(b, plan.Input{
			Now: t0.Add(time.Duration(tick) * 5 * time.Second), Trigger: assign.Tick, Topology: top,
			Load: snapshot(tick), Previous: prev, Version: uint64(tick) + 1,
		})
		plans = append(plans, prev)
	}
	var sharer plan.Sharer
	b.ReportAllocs()
	for turn := 0; b.Loop(); turn++ {
		shared, err := sharer.Share(plans[turn%2], plan.Origin{})
		if err != nil {
			b.Fatal(err)
		}
		bytes := len(shared.Header)
		for i := range shared.Services {
			bytes += len(shared.Services[i].Decision)
		}
		b.SetBytes(int64(bytes))
	}
}

func mustNext(b *testing.B, in plan.Input) *plan.Plan {
	b.Helper()
	p, err := plan.Next(in)
	if err != nil {
		b.Fatal(err)
	}
	if len(p.Violations) > 0 {
		b.Fatalf("%+v", p.Violations[0])
	}
	return p
}

// BenchmarkPreview plays a change of capacity in one zone of every tenth of
// 1,000 services through, until nothing moves.
func BenchmarkPreview(b *testing.B) {
	top, snapshot := big(b, 1000)
	prev := mustNext(b, plan.Input{Now: t0, Trigger: assign.Tick, Topology: top, Load: snapshot(0), Version: 1})
	for tick := range 10 {
		prev = mustNext(b, plan.Input{
			Now: t0.Add(time.Duration(tick) * 5 * time.Second), Trigger: assign.Tick, Topology: top,
			Load: snapshot(0), Previous: prev, Version: prev.Version + 1,
		})
	}
	changed := &isobar.Topology{Network: top.Network, Revision: 2, Services: slices.Clone(top.Services)}
	for s := 0; s < len(changed.Services); s += 10 {
		svc := &changed.Services[s]
		svc.Localities = slices.Clone(svc.Localities)
		svc.Localities[s/10%10].MaxRate = 250
	}
	for b.Loop() {
		p, err := plan.NewPreview(&plan.Turn{Previous: prev, Version: prev.Version + 1, Topology: changed, Now: t0.Add(time.Minute)}, 5*time.Second)
		for more := true; more && err == nil; {
			more, err = p.Step()
		}
		if err != nil {
			b.Fatal(err)
		}
		d := p.Difference()
		b.ReportMetric(float64(d.Ticks), "ticks/op")
		b.ReportMetric(float64(p.Ticks), "played/op")
		b.ReportMetric(float64(len(d.Services)), "services/op")
	}
}

// BenchmarkSurvey plays the loss of one zone for one of 1,000 services.
func BenchmarkSurvey(b *testing.B) {
	top, snapshot := big(b, 1000)
	prev := mustNext(b, plan.Input{Now: t0, Trigger: assign.Tick, Topology: top, Load: snapshot(0), Version: 1})
	b.ReportAllocs()
	var survey *plan.Survey
	for b.Loop() {
		if survey == nil {
			survey = plan.NewSurvey(&plan.Turn{Previous: prev, Version: prev.Version + 1, Topology: top, Now: t0.Add(time.Minute)}, 5*time.Second)
		}
		more, err := survey.Step()
		if err != nil {
			b.Fatal(err)
		}
		if !more {
			survey = nil
		}
	}
}
