package lrs

import (
	"slices"
	"time"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// settings are what clients are asked for. Immutable.
type settings struct {
	interval    time.Duration
	granularity bool
	all         bool // no list of services: everything is known
	services    []string
	known       map[string]string // to itself, for lookups by bytes
}

func (s *Server) settings() *settings {
	out := &settings{interval: DefaultInterval, granularity: s.opts.EndpointGranularity, all: s.opts.Services == nil}
	if s.opts.Interval != nil {
		out.interval = max(MinInterval, s.opts.Interval())
	}
	if out.all {
		return out
	}
	out.services = slices.Compact(slices.Sorted(slices.Values(s.opts.Services())))
	out.known = make(map[string]string, len(out.services))
	for _, name := range out.services {
		out.known[name] = name
	}
	return out
}

func (s *settings) equal(o *settings) bool {
	return s.interval == o.interval && s.granularity == o.granularity && s.all == o.all && slices.Equal(s.services, o.services)
}

// Find implements reader.Services: it gives the name of a service, if it is known.
func (s *settings) Find(name []byte) (string, bool) {
	if known, ok := s.known[string(name)]; ok { // a copy that there is: nothing is allocated
		return known, ok
	}
	known, ok := s.known[resource.ReportedService(string(name))]
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
func (s *settings) response(n *rpc.Node, form rpc.Form) *loadstatsv3.LoadStatsResponse {
	out := &loadstatsv3.LoadStatsResponse{LoadReportingInterval: durationpb.New(s.interval)}
	if form == rpc.V2017 {
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

// sayable tells whether the configuration can be put in words in a form: in
// that of 2017 the list must have an entry.
func (s *settings) sayable(form rpc.Form) bool { return form != rpc.V2017 || len(s.services) > 0 }

// differs tells whether a client that was told before has to be told anew.
func (s *settings) differs(before *settings, n *rpc.Node, form rpc.Form) bool {
	if s.interval != before.interval {
		return true
	}
	if form == rpc.V2017 {
		// Each response makes the client forget what it has counted, so it
		// hears of nothing that it can do without.
		return s.adds(before)
	}
	if s.granularity != before.granularity {
		return true
	}
	return !n.SendAllClusters && !slices.Equal(s.services, before.services)
}

// misses tells whether a client that can't be told again would report wrongly
// with what it was told before: at another interval, or not on a new service.
func (s *settings) misses(before *settings, n *rpc.Node) bool {
	if s.interval != before.interval {
		return true
	}
	if n.SendAllClusters || len(before.services) == 0 { // grpc-go reads an empty list as all
		return false
	}
	return s.adds(before)
}

// adds tells whether there is a service that was not there before. Those that
// are gone do no harm, their reports are dropped here.
func (s *settings) adds(before *settings) bool {
	return slices.ContainsFunc(s.services, func(name string) bool { return !before.knows(name) })
}
