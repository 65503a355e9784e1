package server

import (
	"net/http"

	"github.com/isobar-xds/isobar/internal/console"
)

// console is the web console; nil where the configuration switches it off.
func (s *Server) console() (http.Handler, error) {
	if !s.cfg.Admin.Console {
		return nil, nil //nolint:nilnil // admin takes nil for none
	}
	return console.Handler()
}
