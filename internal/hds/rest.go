package hds

import (
	"net/http"
	"time"

	"github.com/isobar-xds/isobar/internal/hds/convert"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// Handler serves health discovery over HTTP: POST to [rpc.CheckerPath] or
// [rpc.CheckerPathV2] with a HealthCheckRequestOrEndpointHealthResponse in JSON, in either spelling
// of the field names; a HealthCheckRequest alone is taken, too. The answer is a
// HealthCheckSpecifier in JSON with the field names of the proto files. A
// request with the names of 2017 gets an answer with those. See [CheckerHeader]
// for reports.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "POST only", http.StatusMethodNotAllowed)
			return
		}
		body, code, err := rpc.ReadPoll(w, r)
		if err != nil {
			http.Error(w, err.Error(), code)
			return
		}
		form := rpc.V3
		if r.URL.Path == rpc.CheckerPathV2 {
			form = rpc.V2
		}
		m, form, err := convert.HealthMessageFromJSON(body, form)
		if err != nil {
			http.Error(w, "not a HealthCheckRequestOrEndpointHealthResponse in JSON: "+resource.Complaint(err), http.StatusBadRequest)
			return
		}
		got, err := s.fetch(r.Context(), m, form, r.Header.Get(CheckerHeader), r.RemoteAddr, time.Now())
		if err != nil {
			rpc.HTTPRefusal(w, err)
			return
		}
		out, err := convert.SpecifierJSON(got.checker.form, got.specifier)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(CheckerHeader, got.checker.id)
		_, _ = w.Write(out) // when the client has gone, nobody is left to tell
	})
}
