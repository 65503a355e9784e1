package admin

import "net/http"

// getSource shows how things stand with another control plane.
func (s *Server) getSource(w http.ResponseWriter, r *http.Request) {
	state, ok := s.opts.Source()
	if !ok {
		fail(w, http.StatusNotFound, Problem{
			Error: "no other control plane is configured", Place: r.URL.Path,
			Fix: "list its services under source.xds of the configuration file",
		})
		return
	}
	reply(w, http.StatusOK, state)
}
