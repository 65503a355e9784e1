package server

import (
	"net/http"

	"github.com/isobar-xds/isobar/internal/console"
)

// console is the web console; nil where the configuration or the command line
// leaves it out.
func (s *Server) console() (http.Handler, error) {
	if !s.fixed.Admin.Console || s.opts.NoConsole {
		return nil, nil //nolint:nilnil // admin takes nil for none
	}
	return console.Handler()
}
