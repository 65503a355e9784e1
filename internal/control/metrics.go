package control

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/assign/invariant"
	"github.com/isobar-xds/isobar/internal/plan"
)

// metrics are the loop's counters, and a collector that reads the plan in
// force when it is scraped.
type metrics struct {
	ticks        prometheus.Counter
	tickSeconds  prometheus.Histogram
	panics       prometheus.Counter
	ignored      prometheus.Counter
	saveErrors   prometheus.Counter
	loadRefused  prometheus.Counter
	violations   *prometheus.CounterVec
	collectors   []prometheus.Collector
	unregisterer prometheus.Registerer
}

// rules are those that the check of a plan knows.
var rules = []string{
	invariant.RuleWeights, invariant.RuleUnique, invariant.RuleGapless, invariant.RuleNonEmpty, invariant.RuleDrain, invariant.RuleDrop,
	invariant.RuleUnhealthy, invariant.RuleConservation, invariant.RuleCeiling, invariant.RuleRounding, invariant.RuleEntry,
	invariant.RuleStep, invariant.RuleRealised, invariant.RuleForbidden, invariant.RuleFailover, invariant.RuleEndpoints,
	invariant.RuleFinite,
}

func newMetrics(reg prometheus.Registerer, l *Loop) *metrics {
	m := &metrics{
		ticks: counter("isobar_ticks_total", "Decisions made."),
		tickSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "isobar_tick_duration_seconds", Help: "Time from collecting reports to publishing the plan.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8),
		}),
		panics:     counter("isobar_plan_panics_total", "Plans lost to an internal error; the previous plan stayed in force."),
		ignored:    counter("isobar_health_reports_ignored_total", "Accepted entries of health reports that are no votes: the checker or the endpoint had left."),
		saveErrors: counter("isobar_state_save_errors_total", "Plans that could not be written to the state directory."),
		loadRefused: counter("isobar_load_refused_windows_total",
			"Windows of a client and a service that were not kept, or in part, because the load of clients takes all of its memory."),
		violations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "isobar_plan_violations_total",
			Help: "Invariants that a plan broke before publication; the previous plan stayed in force, on current health.",
		}, []string{"rule"}),
	}
	for _, rule := range rules {
		m.violations.WithLabelValues(rule) // a rate sees the first event only of a series that was there
	}
	if reg == nil {
		return m
	}
	m.unregisterer = reg
	m.collectors = []prometheus.Collector{
		m.ticks, m.tickSeconds, m.panics, m.ignored, m.saveErrors, m.loadRefused, m.violations,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "isobar_load_memory_bytes", Help: "Memory that the load of clients uses at the last decision, estimated.",
		}, func() float64 { return float64(l.LoadMemory().Used) }),
		&planCollector{current: l.Current, unsaved: l.Unsaved, silent: l.opts.Silent, exceptions: l.opts.ExceptionsOnly},
		&healthCollector{current: l.healthView.Load}, &reserveCollector{reserves: l.Reserves},
	}
	for _, c := range m.collectors {
		reg.MustRegister(c)
	}
	return m
}

func (m *metrics) unregister() {
	for _, c := range m.collectors {
		m.unregisterer.Unregister(c)
	}
}

func (m *metrics) ticked(d time.Duration) {
	m.ticks.Inc()
	m.tickSeconds.Observe(d.Seconds())
}

// planCollector shows the plan in force. Labels are bounded by the
// configuration: services and their localities.
type planCollector struct {
	current    func() *plan.Plan
	unsaved    func() []string
	silent     func(service string) []plan.SilentClients
	exceptions func() bool // whether only localities that need attention are shown
}

// nearlyFull is the planned utilization from which on a locality needs attention: alerts begin above it.
const nearlyFull = 0.9

var (
	perService  = []string{"service"}
	perLocality = []string{"service", "locality"}
	perBound    = []string{"service", "locality", "bound"}
	perLimit    = []string{"service", "locality", "metric", "dry_run"}

	descVersion     = desc("isobar_plan_version", "Version of the plan in force.", nil)
	descMade        = desc("isobar_plan_timestamp_seconds", "Time of the plan in force, in seconds since 1970.", nil)
	descGap         = desc("isobar_plan_gap_ratio", "Distance of the solution from its lower bound, as a fraction of its cost.", perService)
	descServedGap   = desc("isobar_plan_served_gap_ratio", "The same for the paced and rounded assignment that is served.", perService)
	descExcess      = desc("isobar_plan_excess_seconds", "Upper bound on the difference in mean latency between the solution and the optimum.", perService)
	descDemand      = desc("isobar_demand_requests_per_second", "Demand of the plan in force.", perService)
	descVariability = desc("isobar_demand_variability_ratio", "Variability of demand that is too fast to follow, of the source where it is largest.", perService)
	descCoverage    = desc("isobar_coverage_ratio",
		"Share of the demand that clients report; clients that do not report count as the mean of their locality.", perService)
	descSilentClients = desc("isobar_silent_clients", "Streams of clients that subscribe to a service and report no load.", perService)
	descStale         = desc("isobar_stale_demand_ratio", "Fraction of the demand taken from earlier reports because newer ones are missing.", perService)
	descDegraded      = desc("isobar_degraded_services", "Services by input and degradation level.", []string{"input", "level"})
	descDrop          = desc("isobar_drop_ratio", "Fraction of requests that the assignment drops at clients.", perService)
	descClassDrop     = desc("isobar_class_drop_ratio", "Fraction of requests that the assignment drops at clients of a class.", []string{"service", "class"})
	descUtilization   = desc("isobar_planned_utilization_ratio", "Planned load plus unmanaged load, divided by capacity.", perLocality)
	descCapacity      = desc("isobar_capacity_requests_per_second", "Capacity of the healthy endpoints.", perLocality)
	descObserved      = desc("isobar_observed_capacity_requests_per_second",
		"Lower and upper end (bound low and high) of the capacity of the healthy endpoints, estimated from requests.", perBound)
	descLearned   = desc("isobar_learned_capacity_requests_per_second", "Capacity of the healthy endpoints, learned from utilization reports.", perLocality)
	descLimit     = desc("isobar_limit_requests_per_second", "Rate at which the healthy endpoints reach a limit.", perLimit)
	descCounts    = desc("isobar_limit_binding", "1 if a limit allows less than the capacity and all other limits, or, for a dry run, would do so.", perLimit)
	descPaused    = desc("isobar_paused_services", "Services whose weights an operator has frozen.", nil)
	descUnsaved   = desc("isobar_state_unsaved", "1 while Isobar can't write to the state directory; it continues from memory.", nil)
	descDeviation = desc("isobar_source_deviation_ratio",
		"Largest difference between a planned and an observed share, for sources whose clients do not follow their shares.", []string{"service", "source", "cause"})
	descScore        = desc("isobar_score_ratio", "Agreement of predictions with observations: the lowest part that counts.", perService)
	descScorePart    = desc("isobar_score_part_ratio", "Parts of the score: adherence, utilization, demand.", []string{"service", "part"})
	descMode         = desc("isobar_service_mode", "1 for the mode in force; with mode auto the present one.", []string{"service", "mode"})
	descPromotions   = desc("isobar_mode_promotions_total", "Steps forward of services in mode auto.", perService)
	descRollbacks    = desc("isobar_mode_rollbacks_total", "Steps back of services in mode auto.", perService)
	descOscillations = desc("isobar_share_oscillations_total", "Limit cycles found: shares that oscillated under steady demand and health.", perService)
	descDamping      = desc("isobar_damping_ratio", "Fraction of each step that shares move per tick because they oscillated; 1 = all of it.", perService)
	descUnreachable  = desc("isobar_locality_unreachable", "1 if no source reaches the locality.", perLocality)
	descDrained      = desc("isobar_locality_drained", "1 if the locality has too few healthy endpoints and gets no traffic.", perLocality)
)

func desc(name, help string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// Describe implements prometheus.Collector.
func (c *planCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descPaused, descUnsaved, descVersion, descMade, descGap, descServedGap, descExcess, descDemand, descVariability,
		descCoverage, descSilentClients, descStale, descDegraded, descDrop, descClassDrop, descDeviation, descUtilization, descCapacity, descLearned, descObserved,
		descUnreachable, descDrained,
		descScore, descScorePart, descMode, descPromotions, descRollbacks, descOscillations, descDamping,
		descLimit, descCounts,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *planCollector) Collect(ch chan<- prometheus.Metric) {
	p := c.current()
	if p == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descUnsaved, flag(len(c.unsaved()) > 0))
	gauge(descPaused, float64(plan.CountPaused(p.Services)))
	gauge(descVersion, float64(p.Version))
	gauge(descMade, float64(p.Made.UnixNano())/1e9)
	for _, x := range plan.CountInputs(p.Services) {
		gauge(descDegraded, float64(x.Services), string(x.Input), string(x.Level))
	}
	exceptions := c.exceptions()
	for _, s := range p.Services {
		name := s.Spec.Name
		if s.Solution != nil {
			gauge(descGap, s.Solution.Gap, name)
			gauge(descServedGap, s.PlanGap, name)
			gauge(descExcess, s.Solution.ExcessMS/1000, name)
		}
		demand := 0.0
		for i := range s.Result.Sources {
			demand += s.Result.Sources[i].Demand
		}
		gauge(descDemand, demand, name)
		gauge(descVariability, s.Variability(), name)
		collectCoverage(gauge, s, c.silent(name))
		if s.Load != nil {
			gauge(descStale, s.Load.Stale, name)
		}
		gauge(descDrop, s.Result.Drop, name)
		if classes := s.Result.Classes; classes != nil {
			for c, d := range classes.Drops {
				gauge(descClassDrop, d, name, isobar.Class(c).String())
			}
		}
		collectRollout(ch, s)
		for _, d := range s.Deviations.Deviating {
			gauge(descDeviation, d.Points/100, name, d.Source.String(), d.Cause)
		}
		collectSites(gauge, p, s, exceptions)
	}
}

// collectCoverage collects coverage, and clients that report nothing.
func collectCoverage(gauge func(*prometheus.Desc, float64, ...string), s *plan.Service, silent []plan.SilentClients) {
	clients := 0
	for _, x := range silent {
		clients += x.Clients
	}
	gauge(descCoverage, s.CoverageBesides(silent), s.Spec.Name)
	gauge(descSilentClients, float64(clients), s.Spec.Name)
}

// collectSites collects the localities of a service, or only of those that need attention.
func collectSites(gauge func(*prometheus.Desc, float64, ...string), p *plan.Plan, s *plan.Service, exceptions bool) {
	name := s.Spec.Name
	for i := range s.Sites {
		site := &s.Sites[i]
		if load := s.Result.Load[i] + site.Unmanaged; exceptions && !site.Unreachable && !site.Drained && (site.Capacity == 0 || load < nearlyFull*site.Capacity) {
			continue
		}
		loc := site.Group.Locality.String()
		gauge(descCapacity, site.Capacity, name, loc)
		if l := s.Site(i).Learned(p.Made); l != nil && l.Capacity > 0 {
			gauge(descLearned, l.Capacity, name, loc)
		}
		if c := s.Site(i).ObservedCapacity(); c.Known {
			gauge(descObserved, c.Low, name, loc, "low")
			gauge(descObserved, c.High, name, loc, "high")
		}
		for _, l := range s.Site(i).Limits(p.Made) {
			dry := strconv.FormatBool(l.DryRun)
			if l.State.Tells() {
				gauge(descLimit, l.Capacity, name, loc, l.Metric, dry)
			}
			gauge(descCounts, flag(l.Counts), name, loc, l.Metric, dry)
		}
		if site.Capacity > 0 {
			gauge(descUtilization, (s.Result.Load[i]+site.Unmanaged)/site.Capacity, name, loc)
		}
		gauge(descUnreachable, flag(site.Unreachable), name, loc)
		gauge(descDrained, flag(site.Drained), name, loc)
	}
}

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}

// collectRollout collects the rollout state of a service: its mode, its score and whether its
// shares oscillate.
func collectRollout(ch chan<- prometheus.Metric, s *plan.Service) {
	name := s.Spec.Name
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descMode, 1, name, s.Mode().String())
	if s.Damping != nil {
		ch <- prometheus.MustNewConstMetric(descOscillations, prometheus.CounterValue, float64(s.Damping.Found), name)
		gauge(descDamping, s.Damping.Gain(), name)
	}
	if s.Rollout != nil {
		ch <- prometheus.MustNewConstMetric(descPromotions, prometheus.CounterValue, float64(s.Rollout.Promoted), name)
		ch <- prometheus.MustNewConstMetric(descRollbacks, prometheus.CounterValue, float64(s.Rollout.Demoted), name)
	}
	if score := s.Scores.Explain(s.Mode()); score != nil {
		gauge(descScore, score.Score, name)
		gauge(descScorePart, score.Adherence, name, "adherence")
		if score.Utilization != nil {
			gauge(descScorePart, *score.Utilization, name, "utilization")
		}
		if score.Demand != nil {
			gauge(descScorePart, *score.Demand, name, "demand")
		}
	}
}
