package health

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// The ways to designate a check. Each transport API version can express more of a check; a
// checker of an older version would probe something else, and report it as the result of this
// check. They are part of the abilities of a checker and the needs of endpoints, as protocols
// are, but no protocols: String leaves them out.
const (
	// SpeaksV2 is for settings that v2 has and the API of 2017 lacks: HTTP/2, request headers,
	// statuses other than 200, a host that is not the service's name, a Redis key, another port
	// or host name of an endpoint. No checker of 2017 does gRPC.
	SpeaksV2 Protocols = 1 << (iota + 4)
	// SpeaksV3 is for settings that only v3 has: TLS, other methods than GET, another address of
	// an endpoint.
	SpeaksV3
)

// Needs are the abilities that a checker needs to probe the endpoints of a service; endpoints
// with settings of their own may need more.
func Needs(s *isobar.Service) Protocols {
	var out Protocols
	for i := range s.HealthChecks {
		out |= needsOfCheck(s, &s.HealthChecks[i])
	}
	return out
}

// NeedsOf are the abilities that an endpoint needs in addition to [Needs] of its service.
func NeedsOf(e *isobar.Endpoint) Protocols {
	switch {
	case e.Check == nil || e.Check.Disabled:
		return 0
	case e.Check.Address != "":
		return SpeaksV3 | SpeaksV2
	case e.Check.Port != 0 || e.Check.Hostname != "":
		return SpeaksV2
	}
	return 0
}

// Sockets describes the TLS settings with which endpoints of a service are
// probed; "" where all probes are in plaintext. To a checker all endpoints of a
// service are new ones when they change.
func Sockets(s *isobar.Service) string {
	var out strings.Builder
	for i := range s.HealthChecks {
		c := &s.HealthChecks[i]
		if !c.TLS {
			continue
		}
		host := ""
		switch {
		case c.HTTP != nil:
			host = c.HTTP.Host
		case c.GRPC != nil:
			host = c.GRPC.Authority
		}
		fmt.Fprintf(&out, "%d %q ", i, host)
	}
	return out.String()
}

// plainMethod is the one method of old HTTP checks.
const plainMethod = "GET"

func needsOfCheck(s *isobar.Service, c *isobar.HealthCheck) Protocols {
	out := ProtocolsOf(c.Protocol)
	if c.TLS {
		out |= SpeaksV3 | SpeaksV2
	}
	switch {
	case c.Protocol == isobar.CheckRedis && c.Redis != nil && c.Redis.Key != "":
		out |= SpeaksV2
	case c.Protocol == isobar.CheckHTTP && c.HTTP != nil:
		h := c.HTTP
		if h.Method != "" && h.Method != plainMethod {
			out |= SpeaksV3 | SpeaksV2
		}
		plain := []isobar.StatusRange{{Start: 200, End: 201}}
		if h.HTTP2 || len(h.Headers) > 0 || len(h.Expected) > 0 && !slices.Equal(h.Expected, plain) || h.Host != "" && h.Host != s.Name {
			out |= SpeaksV2
		}
	}
	return out
}

// describe puts the checks that need this into words.
func (p Protocols) describe() string {
	switch {
	case p.Has(SpeaksV3):
		return p.String() + " checks with API v3"
	case p.Has(SpeaksV2):
		return p.String() + " checks with API v2 or later"
	}
	return p.String() + " checks"
}
