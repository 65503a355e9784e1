package health

import (
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// serviceVotes holds the rules, votes and verdicts of one service.
type serviceVotes struct {
	name    string
	rule    rule
	sockets string           // see [Sockets]
	records []record         // sorted by address
	index   map[string]int32 // of records, by address
	others  []other          // endpoints that are not probed, sorted by address
	judged  bool             // an endpoint has had a verdict
	dirty   bool             // a record is
	changed bool             // a status did, since it was last written out
	mass    mass
	served  []isobar.Locality // in which the requests of clients succeed, sorted

	recalled bool // served is of before a restart: no load report has mentioned the service since
}

// rule holds the conditions of a service for verdicts.
type rule struct {
	domains, least int           // agreeing zones and votes
	grace          time.Duration // that a checker needs to find an endpoint down from the start
	window         time.Duration // in which all checkers see one failure
}

// record is the state of one endpoint.
type record struct {
	address  string
	locality isobar.Locality
	probe    isobar.EndpointCheck // where it is probed
	votes    []vote               // sorted by checker

	configured isobar.HealthStatus
	withdrawn  bool // out of use whatever checkers find

	status    isobar.HealthStatus // Unknown: no verdict
	since     instant             // of the status
	confirmed instant             // when a quorum last agreed with it
	appeared  instant
	moved     instant // to where, or changed so that, checkers probe it again
	disputed  instant // since when fresh votes contradict each other
	quorum    bool    // one agrees with the status now
	pending   bool    // waits for its first verdict without traffic
	added     bool    // later than the service, so that it had to wait
	proven    bool    // it has been healthy or degraded
	opposed   bool    // it last went down while the requests of clients succeeded in its locality
	held      bool
	leaving   class // what it is voted to be, while clients would lose it by that; else undecided
	dirty     bool
}

// expected tells an endpoint that is no news when it is down: it was added and
// never came up, or is out of use anyway.
func (r *record) expected() bool { return r.withdrawn || (r.added && !r.proven) }

// other is an endpoint that is not probed.
type other struct {
	address    string
	configured isobar.HealthStatus
}

// vote is the last report of a checker on an endpoint.
type vote struct {
	checker int32
	status  isobar.HealthStatus // Unknown: none yet
	healthy bool                // it has been, since listed
	stream  time.Time           // on which that was said
	since   instant             // of the status
	heard   instant             // last
	listed  instant             // first heard on this stream
}

// record finds an endpoint; also of nil votes.
func (l *serviceVotes) record(address string) *record {
	if l == nil {
		return nil
	}
	i, found := l.index[address]
	if !found {
		return nil
	}
	return &l.records[i]
}

// statuses writes the verdicts down.
func (l *serviceVotes) statuses() map[string]belief {
	out := make(map[string]belief, len(l.records))
	withheld := l.withholds()
	for i := range l.records {
		switch r := &l.records[i]; {
		case r.status != isobar.Unknown:
			out[r.address] = belief{status: r.status}
		case r.pending && withheld:
			out[r.address] = belief{status: isobar.Unhealthy, pending: true}
		}
	}
	return out
}

// withholds reports whether endpoints that wait for their first verdict go
// without traffic: not when all others are down, out of use or gone, as after a
// service has moved to other addresses altogether.
func (l *serviceVotes) withholds() bool {
	return slices.ContainsFunc(l.records, func(r record) bool { return r.status == isobar.Healthy && !r.withdrawn })
}

// vote adds one report; false if it does not count.
func (l *serviceVotes) vote(b *voting, r *record, checker int32, rep *Report) bool {
	i := slices.IndexFunc(r.votes, func(v vote) bool { return v.checker == checker })
	stream := b.checkers[checker].since
	if i < 0 || stream.IsZero() || rep.Arrived.Before(stream) || (!rep.Locality.IsZero() && rep.Locality != r.locality) {
		return false
	}
	v := &r.votes[i]
	at := min(b.at(rep.Arrived), b.now)
	if r.moved != never && time.Duration(at-r.moved) <= b.interval {
		return true // the checker may not know yet, and report on the old place
	}
	if !v.stream.Equal(stream) || v.listed == never {
		v.stream, v.listed, v.healthy = stream, at, false
		r.dirty, l.dirty = true, true
	}
	if at < v.heard {
		return true // newer is known
	}
	if rep.Status != v.status || v.heard == never || time.Duration(at-v.heard) > b.freshFor() {
		r.dirty, l.dirty = true, true
	}
	if rep.Status != v.status {
		v.status, v.since = rep.Status, at
	}
	v.healthy = v.healthy || rep.Status == isobar.Healthy || rep.Status == isobar.Degraded
	v.heard = at
	return true
}

// reached reports whether the requests of clients succeed in a locality: then votes against most
// of the service are not accepted, whatever the checkers see elsewhere.
func (l *serviceVotes) reached(at isobar.Locality) bool { return slices.Contains(l.served, at) }

// serves reports whether a service has an endpoint that is not probed; also on a
// nil serviceVotes.
func (l *serviceVotes) serves(address string) bool {
	if l == nil {
		return false
	}
	_, found := slices.BinarySearchFunc(l.others, address, func(o other, a string) int { return strings.Compare(o.address, a) })
	return found
}
