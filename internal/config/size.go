package config

import (
	"net"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

const (
	// maxAssignment is what gRPC clients accept of one message, unless they were
	// built to accept more.
	maxAssignment = 4 << 20

	// endpointFrame is what an endpoint takes in an encoded assignment beside
	// the text of its IP address: five nested messages, port, health, weight.
	endpointFrame = 22
)

// checkSize warns of a service whose assignment clients may refuse for its
// size. Every endpoint occurs in it once.
func checkSize(at strict.Value, s *isobar.Service) {
	bytes, endpoints := 0, 0
	for i := range s.Localities {
		for j := range s.Localities[i].Endpoints {
			host, _, _ := net.SplitHostPort(s.Localities[i].Endpoints[j].Address) // "" where it is wrong, which is told
			bytes += endpointFrame + len(host)
			endpoints++
		}
	}
	if bytes > maxAssignment {
		at.Warnf("split the service", "%d endpoints take about %.1f MiB on the wire; gRPC clients accept 4 MiB at most, unless built otherwise",
			endpoints, float64(bytes)/(1<<20))
	}
}
