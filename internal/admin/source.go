package admin

import "net/http"

// getSource shows how things stand with another control plane.
func (s *fleetAPI) getSource(w http.ResponseWriter, r *http.Request) {
	state, ok := s.opts.Providers.ControlPlane()
	if !ok {
		fail(w, http.StatusNotFound, Problem{
			Error: "no other control plane is configured", Place: r.URL.Path,
			Fix: "list its services under discovery.xds of the configuration file",
		})
		return
	}
	reply(w, http.StatusOK, state)
}

// getDNS shows how things stand with the names that DNS resolves.
func (s *fleetAPI) getDNS(w http.ResponseWriter, r *http.Request) {
	state, ok := s.opts.Providers.DNS()
	if !ok {
		fail(w, http.StatusNotFound, Problem{
			Error: "no names are configured", Place: r.URL.Path,
			Fix: "list services with the names of their endpoints under discovery.dns of the configuration file",
		})
		return
	}
	reply(w, http.StatusOK, state)
}

// getKubernetes shows how things stand with the Kubernetes cluster.
func (s *fleetAPI) getKubernetes(w http.ResponseWriter, r *http.Request) {
	state, ok := s.opts.Providers.Kubernetes()
	if !ok {
		fail(w, http.StatusNotFound, Problem{
			Error: "no Kubernetes cluster is configured", Place: r.URL.Path,
			Fix: "write discovery.kubernetes into the configuration file",
		})
		return
	}
	reply(w, http.StatusOK, state)
}
