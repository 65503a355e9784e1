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
		mux.Handle(method+" "+pattern, s.metrics.wrap(method+" "+pattern, s.access.guard(limit, h)))
	}
	led := func(method, pattern string, limit int64, h writeFunc) { // writes that change what is decided
		write(method, pattern, limit, s.replicas.byLeader(h))
		s.replicas.passed.Handle(method+" "+pattern, s.access.guard(limit, h))
	}
	const health = "/v1/services/{name}/endpoints/{address}/health"

	large("/v1/services", s.objects.listServices)
	read("/v1/services/{name}", s.objects.getService)
	led("PUT", "/v1/services", maxSetBytes, s.objects.putServices)
	led("PUT", "/v1/services/{name}", maxObjectBytes, s.objects.putService)
	led("DELETE", "/v1/services/{name}", 0, s.objects.deleteService)

	large("/v1/health", s.objects.getHealths)
	read(health, s.objects.getHealth)
	led("PUT", health, maxHealthBytes, s.objects.putHealth)
	led("DELETE", health, 0, s.objects.deleteHealth)

	large("/v1/plan", s.plans.getPlan)
	if s.opts.Configuration != nil {
		mux.Handle("POST /v1/plan", s.metrics.wrap("POST /v1/plan", s.loop.postPlan))
	}
	if s.opts.Operator != nil {
		mux.Handle("POST /v1/whatif", s.metrics.wrap("POST /v1/whatif", s.loop.postWhatIf))
	}
	if s.opts.Recorder != nil {
		mux.Handle("POST /v1/record", s.metrics.wrap("POST /v1/record", s.process.postRecord))
	}
	read("/v1/explain", s.plans.getExplanation)
	read("/v1/capacity", s.plans.getCapacity)
	large("/v1/clients", s.fleet.getClients)

	read("/v1/access", s.access.getAccess)
	read("/v1/status", s.state.getStatus)
	large("/v1/overview", s.state.getOverview)
	large("/v1/flows", s.state.getFlows)
	mux.Handle("GET /v1/stream", s.metrics.count("GET /v1/stream", s.state.getStream))
	s.chartRoutes(read, large, led)
	s.operatorRoutes(large, write, led)
	if s.opts.HealthChecks != nil {
		large("/v1/verdicts", s.fleet.getVerdicts)
		large("/v1/checkers", s.fleet.getCheckers)
		led("PUT", "/v1/services/{name}/health/release", 0, s.fleet.putRelease)
	}
	s.sourceRoutes(large)
	s.replicaRoutes(read, write, led)
	s.pollRoutes(mux)

	s.access.console(mux)
	s.observe(mux)
	mux.Handle("/", s.metrics.wrap("other", func(w http.ResponseWriter, r *http.Request) { notRouted(mux, w, r) }))
	return s.access.survive(s.access.knownHosts(s.access.beneath(s.access.tokens(s.access.costly(s.access.writers(mux))))))
}

// chartRoutes lists what charts show.
func (s *Server) chartRoutes(read, large func(pattern string, h http.HandlerFunc), led func(method, pattern string, limit int64, h writeFunc)) {
	if s.opts.Charts == nil {
		return
	}
	large("/v1/samples", s.history.getSamples)
	read("/v1/marks", s.history.getMarks)
	led("POST", "/v1/marks", maxHealthBytes, s.history.postMark)
}

// operatorRoutes lists the writes of operators, and what changed by it.
func (s *Server) operatorRoutes(large func(pattern string, h http.HandlerFunc), write, led func(method, pattern string, limit int64, h writeFunc)) {
	led("POST", "/v1/drain", maxHealthBytes, s.objects.postDrain)
	led("POST", "/v1/undrain", maxHealthBytes, s.objects.postUndrain)
	if s.opts.Operator != nil {
		large("/v1/history", s.history.getHistory)
		large("/v1/history/timeline", s.history.getTimeline)
		large("/v1/history/moment", s.history.getMoment)
		large("/v1/history/span", s.history.getSpan)
		large("/v1/history/net", s.history.getNet)
		led("POST", "/v1/pause", maxHealthBytes, s.loop.postPause)
		led("POST", "/v1/resume", maxHealthBytes, s.loop.postResume)
		led("POST", "/v1/rollback", maxHealthBytes, s.loop.postRollback)
	}
	if s.opts.Configuration != nil {
		write("POST", "/v1/reload", maxHealthBytes, s.loop.postReload)
	}
}

// sourceRoutes lists the routes that show the providers of endpoints.
func (s *Server) sourceRoutes(large func(pattern string, h http.HandlerFunc)) {
	if s.opts.Providers == nil {
		return
	}
	large("/v1/discovery/xds", s.fleet.getSource)
	large("/v1/discovery/dns", s.fleet.getDNS)
	large("/v1/discovery/kubernetes", s.fleet.getKubernetes)
}

// replicaRoutes lists the routes that show a group of replicas.
func (s *Server) replicaRoutes(read func(pattern string, h http.HandlerFunc), write, led func(method, pattern string, limit int64, h writeFunc)) {
	read("/v1/replicas", s.replicas.getReplicas)
	if s.opts.Replicas != nil {
		write("POST", "/v1/replicas/step-down", maxHealthBytes, s.replicas.postStepDown)
		led("POST", "/v1/replicas/accept-config", maxHealthBytes, s.replicas.postAcceptConfig)
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
	mux.Handle("GET /livez", s.metrics.wrap("GET /livez", s.process.livez))
	mux.Handle("GET /readyz", s.metrics.wrap("GET /readyz", s.process.readyz))
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
