package lrs

import (
	"math/rand/v2"
	"slices"
	"time"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// settings are the services and the interval that clients are to report. Immutable.
type settings struct {
	interval    time.Duration
	granularity bool
	all         bool // no list of services: everything is known
	services    []string
	known       map[string]string // to itself, for lookups by bytes
}

func (s *settings) equal(o *settings) bool {
	return s.interval == o.interval && s.granularity == o.granularity && s.all == o.all && slices.Equal(s.services, o.services)
}

// Find implements reader.Services: it returns the name of a service, if it is known.
func (s *settings) Find(name []byte) (string, bool) {
	if known, ok := s.known[string(name)]; ok { // a copy that there is: nothing is allocated
		return known, ok
	}
	service := resource.ReportedService(string(name))
	if known, ok := s.known[service]; ok {
		return known, ok
	}
	known, ok := s.known[resource.AliasOf(service)]
	return known, ok
}

func (s *settings) knows(service string) bool {
	if s.all {
		return true
	}
	_, ok := s.known[service]
	return ok
}

// response is the configuration for a client: all clusters where it
// understands that, else the list of names.
func (s *settings) response(n *rpc.Node, api rpc.APIVersion) *loadstatsv3.LoadStatsResponse {
	out := &loadstatsv3.LoadStatsResponse{LoadReportingInterval: durationpb.New(s.interval)}
	if api == rpc.V2017 {
		out.Clusters = s.services
		return out
	}
	out.ReportEndpointGranularity = s.granularity
	if n.SendAllClusters {
		out.SendAllClusters = true
	} else {
		out.Clusters = s.services
	}
	return out
}

// sayable reports whether an API version can express the settings: in that of 2017 the list must
// have an entry.
func (s *settings) sayable(api rpc.APIVersion) bool { return api != rpc.V2017 || len(s.services) > 0 }

// differs reports whether a client with earlier settings needs the new ones.
func (s *settings) differs(before *settings, n *rpc.Node, api rpc.APIVersion) bool {
	if s.interval != before.interval {
		return true
	}
	if api == rpc.V2017 {
		// Each response makes the client reset its counters, so the server sends only necessary
		// ones.
		return s.adds(before)
	}
	if s.granularity != before.granularity {
		return true
	}
	return !n.SendAllClusters && !slices.Equal(s.services, before.services)
}

// misses reports whether a client that can't get new settings would report wrongly with its
// earlier ones: at another interval, or not on a new service.
func (s *settings) misses(before *settings, n *rpc.Node) bool {
	if s.interval != before.interval {
		return true
	}
	if n.SendAllClusters || len(before.services) == 0 { // grpc-go reads an empty list as all
		return false
	}
	return s.adds(before)
}

// adds reports whether there is a service that was not there before. Removed services do no harm,
// their reports are dropped here.
func (s *settings) adds(before *settings) bool {
	return slices.ContainsFunc(s.services, func(name string) bool { return !before.knows(name) })
}

// configurer sends one client its settings.
type configurer struct {
	stream   *stream
	sent     *settings        // nil before the first
	changed  <-chan struct{}  // closes when there may be something to tell
	farewell <-chan time.Time // when a client that has to come back is sent away
}

// look compares the wanted settings with those of the client, and sends the client the necessary
// changes.
func (t *configurer) look() error {
	st := t.stream
	now := st.server.wanted()
	want := now.settings
	t.changed = now.changed
	switch {
	case !want.sayable(st.api): // the client waits, or continues with its present settings
		return nil
	case t.sent == nil:
		return t.send(want, sentFirst)
	case st.once:
		switch {
		case !want.misses(t.sent, &st.node):
			t.farewell = nil
		case t.farewell == nil:
			// Spread over an interval, so that they don't come back in one
			// herd. Further changes don't put it off.
			t.farewell = time.After(rand.N(want.interval)) //nolint:gosec // no secret
		}
		return nil
	case !want.differs(t.sent, &st.node, st.api):
		return nil
	}
	return t.send(want, sentAgain)
}

// send sends a configuration.
func (t *configurer) send(want *settings, kind string) error {
	t.sent = want
	t.stream.asked(want.interval, time.Now())
	t.stream.server.metrics.responses.WithLabelValues(kind).Inc()
	return t.stream.apart(func() error { return t.stream.grpc.SendMsg(want.response(&t.stream.node, t.stream.api)) })
}

// asked notes that the client is asked for reports at an interval.
func (st *stream) asked(interval time.Duration, now time.Time) {
	st.mu.Lock()
	defer st.mu.Unlock()
	first := st.interval == 0
	st.interval = interval
	if st.api != rpc.V2017 {
		return
	}
	st.clock.sentAt = now
	if first { // it may have waited for long until there was something to report on
		st.window.Opened = now
	}
}

// clock measures the interval of reports of a client that does not report it: one of 2017. It
// restarts at each response.
type clock struct {
	sentAt   time.Time // when the newest response was sent; zero before the first
	reported time.Time // where the newest report ends; zero before the first
}

// measure sets the interval of a report, if that is known. The report after a response is due one
// interval after it: a report that comes much sooner was in transit when the response was sent,
// and covers the time before.
func (c *clock) measure(r *load.Report, interval time.Duration) {
	from := c.reported
	end := r.Arrived
	if c.sentAt.After(from) {
		if from.IsZero() || end.Sub(c.sentAt) >= interval/2 {
			from = c.sentAt
		} else {
			end = c.sentAt
		}
	}
	if from.IsZero() {
		return
	}
	c.reported = end
	r.ByArrival = true
	for i := range r.Services {
		if r.Services[i].Interval == 0 {
			r.Services[i].Interval = max(0, end.Sub(from))
		}
	}
}
