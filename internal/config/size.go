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

	// addressFrame is what an address takes beside its text.
	addressFrame = 11
)

// checkSize warns of a service whose assignment clients may refuse for its
// size. Every endpoint occurs in it once.
func checkSize(at strict.Value, s *isobar.Service) {
	bytes, endpoints := 0, 0
	for i := range s.Localities {
		bytes += metadataBytes(s.Localities[i].Metadata)
		for j := range s.Localities[i].Endpoints {
			bytes += sizeOf(&s.Localities[i].Endpoints[j])
			endpoints++
		}
	}
	if bytes > maxAssignment {
		at.Warnf("split the service", "%d endpoints take about %.1f MiB on the wire; gRPC clients accept 4 MiB at most, unless built otherwise",
			endpoints, float64(bytes)/(1<<20))
	}
}

// sizeOf is about what an endpoint takes in an encoded assignment.
func sizeOf(e *isobar.Endpoint) int {
	bytes := endpointFrame + hostBytes(e.Address)
	if d := e.Details; d != nil {
		bytes += len(d.Hostname) + metadataBytes(d.Metadata)
		for _, more := range d.AdditionalAddresses {
			bytes += addressFrame + hostBytes(more)
		}
	}
	return bytes
}

func hostBytes(address string) int {
	host, _, _ := net.SplitHostPort(address) // "" where it is wrong, which is told
	return len(host)
}

// metadataBytes: nested messages take a little more than the punctuation of
// JSON.
func metadataBytes(m isobar.Metadata) int { return len(m) + len(m)/4 }
