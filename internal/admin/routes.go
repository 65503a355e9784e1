package admin

import (
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/isobar-xds/isobar/internal/rpc"
)

// routes lists everything the interface answers.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	read := func(pattern string, h http.HandlerFunc) {
		mux.Handle("GET "+pattern, s.metrics.wrap("GET "+pattern, h))
	}
	large := func(pattern string, h http.HandlerFunc) { read(pattern, s.large(h)) }
	write := func(method, pattern string, limit int64, h writeFunc) {
		mux.Handle(method+" "+pattern, s.metrics.wrap(method+" "+pattern, s.guard(limit, h)))
	}
	s.passed = http.NewServeMux()
	led := func(method, pattern string, limit int64, h writeFunc) { // writes that change what is decided
		write(method, pattern, limit, s.byLeader(h))
		s.passed.Handle(method+" "+pattern, s.guard(limit, h))
	}
	const health = "/v1/services/{name}/endpoints/{address}/health"

	large("/v1/services", s.listServices)
	read("/v1/services/{name}", s.getService)
	led("PUT", "/v1/services", maxSetBytes, s.putServices)
	led("PUT", "/v1/services/{name}", maxObjectBytes, s.putService)
	led("DELETE", "/v1/services/{name}", 0, s.deleteService)

	large("/v1/health", s.getHealths)
	read(health, s.getHealth)
	led("PUT", health, maxHealthBytes, s.putHealth)
	led("DELETE", health, 0, s.deleteHealth)

	large("/v1/plan", s.getPlan)
	if s.opts.Configuration != nil {
		mux.Handle("POST /v1/plan", s.metrics.wrap("POST /v1/plan", s.postPlan))
	}
	if s.opts.Operator != nil {
		mux.Handle("POST /v1/whatif", s.metrics.wrap("POST /v1/whatif", s.postWhatIf))
	}
	if s.opts.Recorder != nil {
		mux.Handle("POST /v1/record", s.metrics.wrap("POST /v1/record", s.postRecord))
	}
	read("/v1/explain", s.getExplanation)
	read("/v1/capacity", s.getCapacity)
	large("/v1/clients", s.getClients)

	read("/v1/access", s.getAccess)
	read("/v1/status", s.getStatus)
	large("/v1/overview", s.getOverview)
	large("/v1/flows", s.getFlows)
	mux.Handle("GET /v1/stream", s.metrics.count("GET /v1/stream", s.getStream))
	s.chartRoutes(read, large, led)
	s.orderRoutes(large, write, led)
	if s.opts.HealthChecks != nil {
		large("/v1/verdicts", s.getVerdicts)
		large("/v1/checkers", s.getCheckers)
		led("PUT", "/v1/services/{name}/health/release", 0, s.putRelease)
	}
	s.sourceRoutes(large)
	s.replicaRoutes(read, write, led)
	s.pollRoutes(mux)

	s.console(mux)
	s.observe(mux)
	mux.Handle("/", s.metrics.wrap("other", func(w http.ResponseWriter, r *http.Request) { notRouted(mux, w, r) }))
	return s.survive(s.knownHosts(s.beneath(s.tokens(s.costly(s.writers(mux))))))
}

// chartRoutes lists what charts show.
func (s *Server) chartRoutes(read, large func(pattern string, h http.HandlerFunc), led func(method, pattern string, limit int64, h writeFunc)) {
	if s.opts.Charts == nil {
		return
	}
	large("/v1/samples", s.getSamples)
	read("/v1/marks", s.getMarks)
	led("POST", "/v1/marks", maxHealthBytes, s.postMark)
}

// orderRoutes lists what operators order, and what changed by it.
func (s *Server) orderRoutes(large func(pattern string, h http.HandlerFunc), write, led func(method, pattern string, limit int64, h writeFunc)) {
	led("POST", "/v1/drain", maxHealthBytes, s.postDrain)
	led("POST", "/v1/undrain", maxHealthBytes, s.postUndrain)
	if s.opts.Operator != nil {
		large("/v1/history", s.getHistory)
		large("/v1/history/timeline", s.getTimeline)
		large("/v1/history/moment", s.getMoment)
		led("POST", "/v1/pause", maxHealthBytes, s.postPause)
		led("POST", "/v1/resume", maxHealthBytes, s.postResume)
		led("POST", "/v1/rollback", maxHealthBytes, s.postRollback)
	}
	if s.opts.Configuration != nil {
		write("POST", "/v1/reload", maxHealthBytes, s.postReload)
	}
}

// sourceRoutes lists what tells of the providers of endpoints.
func (s *Server) sourceRoutes(large func(pattern string, h http.HandlerFunc)) {
	if s.opts.Providers == nil {
		return
	}
	large("/v1/discovery/xds", s.getSource)
	large("/v1/discovery/dns", s.getDNS)
	large("/v1/discovery/kubernetes", s.getKubernetes)
}

// replicaRoutes lists what tells of a group of replicas.
func (s *Server) replicaRoutes(read func(pattern string, h http.HandlerFunc), write, led func(method, pattern string, limit int64, h writeFunc)) {
	if s.opts.Replicas != nil {
		read("/v1/replicas", s.getReplicas)
		write("POST", "/v1/replicas/step-down", maxHealthBytes, s.postStepDown)
		led("POST", "/v1/replicas/accept-config", maxHealthBytes, s.postAcceptConfig)
	}
}

// pollRoutes lists what checkers poll.
func (s *Server) pollRoutes(mux *http.ServeMux) {
	if s.opts.Polls == nil {
		return
	}
	for _, path := range []string{rpc.CheckerPath, rpc.CheckerPathV2} {
		mux.Handle("POST "+path, s.metrics.wrap("POST "+path, s.opts.Polls.ServeHTTP))
	}
}

// observe serves what is asked of any process: probes, metrics and profiles.
func (s *Server) observe(mux *http.ServeMux) {
	mux.Handle("GET /livez", s.metrics.wrap("GET /livez", s.livez))
	mux.Handle("GET /readyz", s.metrics.wrap("GET /readyz", s.readyz))
	mux.Handle("GET /metrics", s.large(promhttp.HandlerFor(s.opts.Gatherer, promhttp.HandlerOpts{}).ServeHTTP))
	mux.HandleFunc("GET /debug/pprof/", few(maxProfiles, pprof.Index))
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

// notRouted answers what no route takes: 405 where another method would do.
func notRouted(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 && strings.HasPrefix(r.URL.EscapedPath(), "/v1/services/") {
		fail(w, http.StatusNotFound, Problem{
			Error: "no such path",
			Place: r.URL.EscapedPath(),
			Fix:   "write a / within the name of a service as %2F: /v1/services/shop%2Fcheckout",
		})
		return
	}
	if len(allowed) == 0 {
		fail(w, http.StatusNotFound, Problem{
			Error: "no such path",
			Place: r.URL.Path,
			Fix: "use /v1/services, /v1/health, /v1/verdicts, /v1/checkers, /v1/plan, /v1/whatif, /v1/record, /v1/explain, /v1/capacity, /v1/clients, " +
				"/v1/samples, /v1/marks, /v1/history, /v1/drain, /v1/undrain, /v1/access, /v1/reload, /v1/status, /v1/overview, /v1/flows, " +
				"/v1/stream, /v1/discovery/xds, /v1/discovery/dns, /v1/discovery/kubernetes, /v1/replicas, /metrics, /livez, /readyz or /debug/pprof/",
		})
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	fail(w, http.StatusMethodNotAllowed, Problem{
		Error: "method " + r.Method + " is not allowed here",
		Place: r.URL.Path,
		Fix:   "use " + strings.Join(allowed, " or "),
	})
}
