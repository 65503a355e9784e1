package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// maxServiceName is the length of the longest name of a service, in bytes.
const maxServiceName = 253

// serviceName matches the names of services; their length has its own limit. Names are part of
// resource names, URLs, metrics and logs. Each part between slashes begins with a
// letter or a digit: no name is empty between slashes, "." or "..", which proxies and
// browsers would leave out of a URL, and no name begins as an xdstp name does.
var serviceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:|-]*(/[A-Za-z0-9][A-Za-z0-9._:|-]*)*$`)

const serviceNameHint = "use letters, digits and . _ - : | /, with a letter or digit at the beginning and after each /, at most 253"

// validServiceName reports whether a service may have the name.
func validServiceName(s string) bool { return len(s) <= maxServiceName && serviceName.MatchString(s) }

const reservedHint = "give the service another name: Envoys have a cluster of this name already, and would ignore the service's"

// readServices reads a list of services and checks them against each other. It reads no
// service of a list that is too long: a service takes several times the memory of its text.
func readServices(v strict.Value, d Defaults) []isobar.Service {
	items, _ := v.List()
	if len(items) > isobar.MaxServices {
		v.Errorf("write fewer services", "%d services are more than the %d that one server takes", len(items), isobar.MaxServices)
		return nil
	}
	out := make([]isobar.Service, 0, len(items))
	lines := map[string]int{}
	var calls []placedCall
	for _, item := range items {
		r := serviceReader{defaults: d}
		s := r.service(item)
		if s.Name == "" {
			continue // its name is wrong, which is told already
		}
		if line, twice := lines[s.Name]; twice {
			r.nameAt.Errorf("rename one, or merge their localities", "service %s is given twice, first in line %d", s.Name, line)
			continue
		}
		lines[s.Name] = r.nameAt.Pos().Line
		calls = append(calls, r.calls...)
		out = append(out, s)
	}
	checkCalls(calls, lines)
	return out
}

// serviceReader reads one service and remembers the places that checks across
// its parts need.
type serviceReader struct {
	defaults Defaults
	name     string        // what the URL calls the service; empty in a list
	listed   *listedReader // nil = the endpoints are given with the service

	nameAt     strict.Value
	maxShiftAt *strict.Value
	promoteAt  *strict.Value

	criticalityAt *strict.Value

	localitiesAt *strict.Value
	calls        []placedCall
	sites        map[isobar.Locality]int // line of each locality
	addresses    map[string]int          // line of each endpoint

	limitsAt *strict.Value // where they are given, if at all

	policyAt strict.Value // where the policy is given, else the service
	weights  placedWeights

	modeUnknown, policyUnknown bool // given, and no such thing: told, so what depends on them is not

	cluster clusterPlaces

	checkersAt *strict.Value // where they are given, if at all
	checksAt   *strict.Value // health_checks, if given
	checksBad  bool          // health_checks are no list

	seen map[isobar.Metadata]isobar.Metadata
	// warnedDual is set once it was told what clients do with additional addresses.
	warnedDual bool
}

// service returns one without settings of its own.
func (d *Defaults) service(name string) isobar.Service {
	return isobar.Service{
		Name: name, Mode: d.Mode, Policy: d.Policy, Isolation: d.Isolation, Residency: d.Residency,
		FailoverThreshold: d.FailoverThreshold, Promote: d.Promote, MaxShift: d.MaxShift, MaxShed: d.MaxShed, ServiceTimeMS: d.ServiceTimeMS,
		CapacityTrust: d.CapacityTrust, ErrorCostMS: d.ErrorCostMS,
		Limits: d.Limits, ClusterSettings: d.Cluster,
		Localities: []isobar.ServiceLocality{},
	}
}

func (r *serviceReader) service(v strict.Value) isobar.Service {
	s := r.defaults.service(r.name)
	r.nameAt, r.policyAt = v, v
	r.sites, r.addresses = map[isobar.Locality]int{}, map[string]int{}
	r.seen = map[isobar.Metadata]isobar.Metadata{}
	switch {
	case r.name == ReservedName:
		v.Errorf(reservedHint, "%q in the URL is the name of the management server's own cluster", r.name)
	case r.name != "" && !validServiceName(r.name):
		v.Errorf(serviceNameHint, "%q in the URL is not a service name", r.name)
	}
	v.Object(append([]strict.Field{
		{Name: "name", Required: r.name == "", Read: func(v strict.Value) { r.readName(v, &s.Name) }},
		{Name: "mode", Read: func(v strict.Value) { r.modeUnknown = !readMode(v, &s.Mode) }},
		{Name: "policy", Read: func(v strict.Value) { r.policyAt, r.policyUnknown = v, !readPolicy(v, &s.Policy) }},
		isolationField(&s.Isolation), residencyField(&s.Residency),
		floatField("failover_threshold", &s.FailoverThreshold, failoverRange),
		{Name: "promote", Read: func(v strict.Value) {
			r.promoteAt = &v
			promoteField(&s.Promote).Read(v)
		}},
		{Name: "max_shift", Read: func(v strict.Value) {
			r.maxShiftAt = &v
			floatField("", &s.MaxShift, shiftRange).Read(v)
		}},
		floatField("max_shed", &s.MaxShed, shedRange),
		criticalityField(&s.Criticality, &r.criticalityAt),
		trustField(&s.CapacityTrust),
		floatField("service_time_ms", &s.ServiceTimeMS, serviceTimeRange), floatField("error_cost_ms", &s.ErrorCostMS, errorCostRange),
		orcaField(&s.ORCA),
		{Name: "limits", Read: func(v strict.Value) { r.limitsAt, s.Limits = &v, readLimits(v) }},
		{Name: "localities", Required: !r.listed.givesLocalities(), Read: func(v strict.Value) { r.localitiesAt, s.Localities = &v, r.localities(v) }},
		{Name: "calls", Read: func(v strict.Value) { s.Calls = r.readCalls(v, s.Name) }},
		{Name: "health_checks", Read: func(v strict.Value) { s.HealthChecks = r.healthChecks(v) }},
		{Name: "checkers", Read: func(v strict.Value) { r.checkersAt, s.Checkers = &v, readCheckers(v) }},
		{Name: "assignment", Read: func(v strict.Value) { s.Assignment = readAssignment(v) }},
		r.listed.field(),
		{Name: "ceiling", Elsewhere: "give it to each of the localities, or to all services in `defaults` of the file"},
		ofLocality("locality"), ofLocality("max_rate"), ofLocality("concurrency"),
		ofLocality("capacity_scaler"), ofLocality("unmanaged_load"), ofLocality("endpoints"),
		{Name: "tls", Read: func(v strict.Value) { s.TLS = readEndpointTLS(v) }},
	}, clusterFields(&s.ClusterSettings, &r.cluster)...))
	r.cluster.check(&s)
	r.checkHealth(&s)
	if !r.policyUnknown {
		r.weights.check(&s, r.policyAt)
	}
	checkLimits(r.limitsAt, &s)
	if r.localitiesAt != nil {
		checkSize(*r.localitiesAt, &s)
	}
	r.checkMode(&s)
	checkCriticality(r.criticalityAt, &s)
	return s
}

// checkMode warns of settings that have no effect in the mode.
func (r *serviceReader) checkMode(s *isobar.Service) {
	if r.modeUnknown {
		return
	}
	if r.maxShiftAt != nil && s.Mode != isobar.ModeBounded && s.Mode != isobar.ModeAuto {
		r.maxShiftAt.Warnf("write mode: bounded, or remove max_shift", "max_shift has no effect in mode %s", s.Mode)
	}
	if r.promoteAt != nil && s.Mode != isobar.ModeAuto {
		r.promoteAt.Warnf("write mode: auto, or remove promote", "promote has no effect in mode %s", s.Mode)
	}
}

// ofLocality is a field that a service does not have, but its localities.
func ofLocality(name string) strict.Field {
	return strict.Field{Name: name, Elsewhere: "it belongs to a locality: put it into `localities`"}
}

func (r *serviceReader) readName(v strict.Value, into *string) {
	s, ok := v.Text()
	switch {
	case !ok:
	case r.name != "" && s != r.name:
		v.Errorf("use the same name, or leave it out of the body", "the body names %q, the URL %q", s, r.name)
	case s == ReservedName:
		v.Errorf(reservedHint, "%q is the name of the management server's own cluster", s)
	case !validServiceName(s):
		v.Errorf(serviceNameHint, "%q is not a service name", s)
	default:
		*into, r.nameAt = s, v
		if strings.Contains(s, "|") {
			v.Warnf("use another name, unless only Envoys ask for it", "%q: clients of grpc-js can't ask for a name with |, grpc-java does as %%7C", s)
		}
	}
}

func (r *serviceReader) localities(v strict.Value) []isobar.ServiceLocality {
	items, ok := v.List()
	if ok && len(items) == 0 {
		v.Errorf("add the localities where the service runs", "is empty")
	}
	out := make([]isobar.ServiceLocality, 0, len(items))
	for _, item := range items {
		out = append(out, r.locality(item))
	}
	slices.SortStableFunc(out, func(a, b isobar.ServiceLocality) int { return a.Locality.Compare(b.Locality) })
	return out
}

func (r *serviceReader) locality(v strict.Value) isobar.ServiceLocality {
	l := isobar.ServiceLocality{Ceiling: r.defaults.Ceiling, Endpoints: []isobar.Endpoint{}}
	c := contradictions{at: v}
	var lookups []DNSLookup
	v.Object(append([]strict.Field{
		localityField("locality", func(v strict.Value, name isobar.Locality) {
			l.Locality = name
			if line, twice := r.sites[name]; twice {
				v.Errorf("put its endpoints into one entry", "locality %s is given twice, first in line %d", name, line)
			}
			r.sites[name] = v.Pos().Line
		}),
		floatField("max_rate", &l.MaxRate, rateRange),
		floatField("concurrency", &l.Concurrency, concurrencyRange),
		floatField("ceiling", &l.Ceiling, ceilingRange),
		floatField("capacity_scaler", &l.CapacityScaler, scalerRange),
		floatField("unmanaged_load", &l.UnmanagedLoad, unmanagedRange),
		{Name: "metadata", Read: func(v strict.Value) { l.Metadata = r.metadata(v) }},
		r.listed.endpoints(func(v strict.Value) {
			c.at, c.given = v, v.IsList()
			l.Endpoints = r.endpoints(v)
		}),
		r.listed.lookupsField(&lookups),
		r.weights.field(&l.Weight), boolField("preferred", &l.Preferred),
		{Name: "health", Elsewhere: "it belongs to an endpoint: write endpoints as objects with address and health"},
	}, renamed(renamedOfLocality)...))
	c.check(&l)
	if len(lookups) > 0 {
		r.listed.lookups[l.Locality] = lookups
	}
	return l
}
