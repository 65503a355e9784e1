package main

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// seenWithin is how long a failure may take to be seen by clients: as many
// probes as count, the last one's timeout, a report (the interval differs by up
// to 50 ms between streams) and 200 ms for everything else.
const seenWithin = probeThreshold*(probeInterval+probeTimeout) + reportInterval + 50*time.Millisecond + 200*time.Millisecond

// slack is what may be added to that, and to other bounds, on a machine that
// has other things to do, beside the time that it stood still altogether. The
// median of all trials has to do without it.
const slack = 4 * time.Second

// TestHealthDiscoveryWithRealProcesses runs the server, five `isobar checker`
// in three zones, real HTTP, TCP, gRPC and Redis servers and a real grpc-go xDS
// client. Servers fail in several ways, checkers are cut off, frozen and
// killed; what the client holds of EDS is what counts.
func TestHealthDiscoveryWithRealProcesses(t *testing.T) {
	f := newCheckedFleet(t)
	f.failures()
	f.frozenChecker()
	f.partition()
	f.lostChecker()
	f.noCheckers()
}

// failures breaks one server of each service in each way: the verdict is the
// right one and comes in time, and the server is used again when it is well.
func (f *checkedFleet) failures() {
	f.t.Helper()
	var found, recovered []time.Duration
	for _, tt := range []struct {
		how  failure
		name string
		want string
	}{
		{hangs, "hangs", "TIMEOUT"},
		{refuses, "refuses", "UNHEALTHY"},
		{errs, "answers that it is not well", "UNHEALTHY"},
		{slow, "is slow", "TIMEOUT"},
	} {
		began := map[string]time.Time{}
		for i, s := range f.services {
			began[s] = time.Now()
			f.targets[s][i].Break(f.t, tt.how)
		}
		for i, s := range f.services {
			took := f.seen(s, f.targets[s][i], tt.want, began[s])
			f.t.Logf("%s: a server that %s is %s to the client after %v", s, tt.name, tt.want, took)
			found = append(found, took)
		}
		for i, s := range f.services {
			f.targets[s][i].Mend(f.t)
			began[s] = time.Now()
		}
		for i, s := range f.services {
			recovered = append(recovered, f.seen(s, f.targets[s][i], "HEALTHY", began[s]))
		}
		if !f.allHealthy() {
			f.t.Errorf("servers of which one %s: the client sees %v afterwards", tt.name, f.sights())
		}
	}
	for what, list := range map[string][]time.Duration{"failures": found, "recoveries": recovered} {
		slices.Sort(list)
		median, most := list[len(list)/2], list[len(list)-1]
		f.t.Logf("%d %s were seen within %v, half of them within %v; the bound is %v", len(list), what, most, median, seenWithin)
		if median > seenWithin || most > seenWithin+slack {
			f.t.Errorf("%s were seen after %v, bound %v", what, list, seenWithin)
		}
	}
}

// seen waits until the client holds an endpoint with a status, and returns the
// time from began to when it did, without stalls of the machine.
func (f *checkedFleet) seen(service string, e target, want string, began time.Time) time.Duration {
	f.t.Helper()
	var at time.Time
	f.eventually(service+" "+e.Address()+" "+want, func() bool {
		var h string
		h, at = f.watch.of(service, e.Address())
		return h == want
	})
	return at.Sub(began) - f.stalls.between(began, at)
}

// decidedWithout finds an endpoint of which a checker is one that the others
// can do without: they are two, in two zones. Votes of two in one zone decide
// nothing, so endpoints whose third checker is cut off may have to wait.
func (f *checkedFleet) decidedWithout(service string) (target, *checkerProcess) {
	f.t.Helper()
	for _, v := range f.verdicts(service).Endpoints {
		for _, out := range v.Votes {
			zones := map[isobar.Locality]bool{}
			for _, o := range v.Votes {
				if o.Checker != out.Checker && o.Fresh && o.Counts {
					zones[o.Zone] = true
				}
			}
			if len(zones) == 2 {
				return f.target(service, v.Address), f.checker(out.Checker)
			}
		}
	}
	f.t.Fatalf("each endpoint of %s depends on all of its checkers: %+v", service, f.verdicts(service))
	return nil, nil
}

// frozenChecker: a checker's process stands still, with its connections open.
// The others go on deciding, also when its last votes have grown old.
func (f *checkedFleet) frozenChecker() {
	f.t.Helper()
	broken, c := f.decidedWithout("web")
	before := f.watch.all()
	c.signal(syscall.SIGSTOP)
	broken.Break(f.t, hangs)
	f.seen("web", broken, "TIMEOUT", time.Now())
	f.steadily("a checker is frozen", 4*reportInterval)
	broken.Mend(f.t)
	f.seen("web", broken, "HEALTHY", time.Now())
	c.signal(syscall.SIGCONT)
	f.steadily("a checker goes on", 2*reportInterval)
	f.unchanged("a checker was frozen", before, broken)
}

// partition: a checker gets no answer from any server, and says so. It is
// outvoted, also on a server that really fails and recovers, and operators see
// that the path is at fault.
func (f *checkedFleet) partition() {
	f.t.Helper()
	if !canCutProcesses {
		return
	}
	broken, c := f.decidedWithout("line")
	before, pid := f.watch.all(), c.cmd.Process.Pid
	f.network.change(func() { f.network.cut[pid] = &cutProcess{pid: pid} })
	broken.Break(f.t, refuses)
	f.seen("line", broken, "UNHEALTHY", time.Now())
	broken.Mend(f.t)
	f.seen("line", broken, "HEALTHY", time.Now())
	seenFrom := func() (zones []isobar.Locality) {
		for _, v := range f.verdicts("line").Endpoints {
			if v.Divided {
				zones = append(zones, v.Zones...)
			}
		}
		return zones
	}
	f.eventually("the path problem shows", func() bool { return slices.Contains(seenFrom(), c.zone) })
	for _, z := range seenFrom() {
		if z != c.zone {
			f.t.Errorf("a checker in %s is cut off, and %s is blamed", c.zone, z)
		}
	}
	f.network.change(func() { delete(f.network.cut, pid) })
	f.eventually("the path problem ends", func() bool { return len(seenFrom()) == 0 })
	f.unchanged("a checker was cut off from all servers", before, broken)
}

// lostChecker: a checker is killed. Its endpoints are probed by others within
// two report intervals, and no verdict changes.
func (f *checkedFleet) lostChecker() {
	f.t.Helper()
	before := f.watch.all()
	f.checkers[4].kill()
	f.checkers = f.checkers[:4]
	took := f.eventually("the endpoints of a checker that was killed are probed by others", func() bool {
		total := 0
		for _, c := range f.checkers {
			n, ok := c.endpoints()
			if !ok {
				return false
			}
			total += n
		}
		return total == 3*endpointsEach*len(f.services)
	})
	f.t.Logf("the endpoints of a lost checker are probed by others after %v", took)
	if bound := 2 * reportInterval; took > bound+slack {
		f.t.Errorf("the endpoints of a lost checker are probed by others after %v, want %v", took, bound)
	}
	f.steadily("a checker was killed", 4*reportInterval)
	f.unchanged("a checker was killed", before)
}

// noCheckers: all are killed. What was believed stays and grows old, until
// there are checkers again.
func (f *checkedFleet) noCheckers() {
	f.t.Helper()
	broken := f.targets["web"][3]
	broken.Break(f.t, refuses)
	f.seen("web", broken, "UNHEALTHY", time.Now())
	before := f.watch.all()
	for _, c := range f.checkers {
		c.kill()
	}
	broken.Mend(f.t)
	var old health.Summary
	f.eventually("no vote is fresh", func() bool {
		old = f.verdicts("web").Summary
		return old.FreshVotes == 0 && old.Frozen == endpointsEach
	})
	f.steadily("all checkers were killed", 4*reportInterval)
	f.unchanged("all checkers were killed", before)
	if now := f.verdicts("web").Summary; !now.OldestConfirmed.Equal(old.OldestConfirmed) || time.Since(now.OldestConfirmed) < 3*reportInterval {
		f.t.Errorf("without checkers verdicts don't grow old: confirmed at %v, and at %v", old.OldestConfirmed, now.OldestConfirmed)
	}
	f.startCheckers()
	f.seen("web", broken, "HEALTHY", time.Now())
	f.unchanged("checkers are back", before, broken)
}
