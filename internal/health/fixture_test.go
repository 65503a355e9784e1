package health_test

import (
	"fmt"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var (
	zoneA = isobar.MustLocality("eu/a")
	zoneB = isobar.MustLocality("eu/b")
	zoneC = isobar.MustLocality("eu/c")
	zoneF = isobar.MustLocality("us/f")
)

var everything = health.ProtocolsOf(isobar.CheckHTTP, isobar.CheckTCP, isobar.CheckGRPC, isobar.CheckRedis) | health.SpeaksV2 | health.SpeaksV3

// tcp is a check every 5 s with the default thresholds.
func tcp() isobar.HealthCheck {
	return isobar.HealthCheck{
		Protocol: isobar.CheckTCP, Interval: 5 * time.Second, Timeout: time.Second,
		UnhealthyThreshold: 3, HealthyThreshold: 2, TCP: &isobar.TCPCheck{},
	}
}

func checker(id string, at isobar.Locality) health.Checker {
	return health.Checker{ID: id, NodeID: id, Locality: at, Protocols: everything, Since: start, LastSeen: start}
}

// checkersIn gives n checkers in each zone.
func checkersIn(n int, zones ...isobar.Locality) (out []health.Checker) {
	for _, z := range zones {
		for i := range n {
			out = append(out, checker(fmt.Sprintf("%s-%d", z, i), z))
		}
	}
	return out
}

// service has n endpoints in each zone.
func service(name string, n int, zones ...isobar.Locality) isobar.Service {
	s := isobar.Service{Name: name, HealthChecks: []isobar.HealthCheck{tcp()}}
	for z, l := range zones {
		sl := isobar.ServiceLocality{Locality: l}
		for i := range n {
			sl.Endpoints = append(sl.Endpoints, isobar.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d:80", z, i/250, i%250)})
		}
		s.Localities = append(s.Localities, sl)
	}
	return s
}

func topology(services ...isobar.Service) *isobar.Topology {
	t := &isobar.Topology{Services: services}
	t.Normalize()
	return t
}

// designated lists the checkers of an endpoint.
func designated(p *health.Placement, k health.Key) (out []string) {
	for _, d := range p.Designations {
		for _, e := range d.Endpoints {
			if e == k {
				out = append(out, d.Checker)
			}
		}
	}
	return out
}
