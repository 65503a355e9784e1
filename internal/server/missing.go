package server

import (
	"slices"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config/strict"
	"github.com/isobar-xds/isobar/internal/xds"
)

// maxNearest bounds for how many missing services the nearest names are searched,
// in one answer.
const maxNearest = 100

// nearest returns what finds the services whose names are nearest to one that
// does not exist.
func (s *Server) nearest() func(name string) []string {
	found := map[string][]string{}
	var names []string
	return func(name string) []string {
		near, known := found[name]
		if known || len(found) >= maxNearest {
			return near
		}
		if names == nil {
			names = s.serviceNames()
		}
		near = strict.Nearest(name, names, 3)
		found[name] = near
		return near
	}
}

// serviceNames lists the services of the plan in force.
func (s *Server) serviceNames() []string {
	if p := s.loop.Current(); p != nil {
		return p.ServiceNames()
	}
	return []string{}
}

// missingTroubles names the services that clients ask for and that do not exist.
func (s *Server) missingTroubles() []admin.Attention {
	nearest := s.nearest()
	var out []admin.Attention
	for _, m := range s.xds.Missing() {
		lacking := admin.MissingService{Name: m.Name, Nearest: nearest(m.Name)}
		out = append(out, admin.NewAttention(admin.ServiceUnknown, "%s (streams that ask for it: %d, one of node %q at %s)",
			lacking.String(), m.Streams, m.Node, m.Peer).Of(m.Name).By(m.Node).See("isobar clients"))
	}
	return out
}

// lackedBy lists the services that a client asks for and that do not exist.
func lackedBy(c *xds.Client, nearest func(string) []string) []admin.MissingService {
	var out []admin.MissingService
	for i := range c.Types {
		for _, name := range c.Types[i].Missing {
			if !slices.ContainsFunc(out, func(m admin.MissingService) bool { return m.Name == name }) {
				out = append(out, admin.MissingService{Name: name, Nearest: nearest(name)})
			}
		}
	}
	return out
}
