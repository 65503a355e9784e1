package server

import (
	"fmt"
	"reflect"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
)

// defaults are those of the file in force.
func (s *Server) defaults() config.Defaults { return s.current.Load().Defaults }

// outdatedDefaults tells how many services the changed defaults of another file do
// not reach: those of the API hold what was filled in when they were written, as
// whoever reads them back sees. "" where there are none.
func (s *Server) outdatedDefaults(next *config.Live) string {
	if reflect.DeepEqual(s.defaults(), next.Defaults) {
		return ""
	}
	n := 0
	for _, o := range s.registry.List() {
		if o.Owner == isobar.OwnerAPI {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("defaults have changed, but %d services of the API keep the defaults that were in force when they were written; "+
		"write them again to have the new ones", n)
}
