package server

import (
	"time"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/source/xdsource"
)

// upstreamConfig translates; nil stays nil.
func upstreamConfig(c *config.XDSSource) *xdsource.Config {
	if c == nil {
		return nil
	}
	out := &xdsource.Config{
		Server: c.Server, ADS: c.ADS, DefaultLocality: c.DefaultLocality, EmptyHold: c.EmptyHold,
		Node:     xdsource.Node{ID: c.Node.ID, Cluster: c.Node.Cluster, Locality: c.Node.Locality},
		Services: make([]xdsource.Service, len(c.Services)),
	}
	if t := c.TLS; t != nil {
		out.TLS = &xdsource.TLS{CA: t.CA, Cert: t.Cert, Key: t.Key, ServerName: t.ServerName}
	}
	for i := range c.Services {
		out.Services[i] = xdsource.Service{EDSName: c.Services[i].EDSName, Settings: c.Services[i].Service, Ceiling: c.Services[i].Ceiling}
	}
	return out
}

// upstreamState shows operators how things stand with the other control plane.
func (s *Server) upstreamState() (any, bool) { return s.upstream.Status() }

// upstreamGrace is for how long the other control plane may be away without a
// word: it restarts, too.
const upstreamGrace = time.Minute

// upstreamTroubles tells operators what is wrong with the other control plane
// and what it lists.
func (s *Server) upstreamTroubles() []string {
	up, ok := s.upstream.Status()
	if !ok {
		return nil
	}
	var out []string
	if !up.Connected && time.Since(up.Since) > upstreamGrace {
		text := "the control plane " + up.Server + " lists no endpoints"
		if !up.Since.IsZero() {
			text += " since " + up.Since.UTC().Format(time.RFC3339)
		}
		out = append(out, text+", so what it listed last stays: "+up.Failure)
	}
	for i := range up.Services {
		svc := &up.Services[i]
		switch svc.State {
		case xdsource.Waiting:
			if up.Connected || len(out) > 0 {
				out = append(out, svc.Name+": its clients get no endpoints yet: the other control plane has not listed "+svc.EDSName)
			}
		case xdsource.Held:
			out = append(out, svc.Name+": the other control plane lists no endpoints any more; those of before stay for now")
		case xdsource.Refused:
			out = append(out, svc.Name+": what the other control plane lists is refused: "+svc.Refused)
		case xdsource.Current, xdsource.Kept, xdsource.Empty:
		}
	}
	return out
}
