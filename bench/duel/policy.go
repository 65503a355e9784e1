package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/fleet/envoyloop"
	"github.com/isobar-xds/isobar/internal/sim"
	"github.com/isobar-xds/isobar/solver"
)

// policy is one way to tell Envoys where requests go.
type policy struct {
	Name, About string
	// cluster is a static cluster for the Envoys of a source; nil where Isobar serves
	// the assignment.
	cluster func(f *fleet, source int) (string, error)
	// lbPolicy replaces the load balancing policy of the cluster that takes its
	// endpoints from Isobar.
	lbPolicy  string
	simulated string // name of the policy of the simulator that is the same; empty = none is
}

var policies = []policy{
	{Name: "failover", About: "locality failover: own zone, region, rest", cluster: failover, simulated: "failover"},
	{Name: "zone-aware", About: "zone-aware routing within the region, then the other region", cluster: zoneAware},
	{
		Name: "weights", About: "static locality weights, made by someone who knew demand and capacity before the event",
		cluster: weighted, simulated: sim.NameStaticMean,
	},
	{Name: "load-aware", About: "load_aware_locality over all zones", cluster: loadAware(false), simulated: "load-aware"},
	{Name: "load-aware-region", About: "load_aware_locality within the region, then the other region", cluster: loadAware(true)},
	{Name: "isobar+load-aware", About: "load_aware_locality over the endpoints that Isobar assigns", lbPolicy: loadAwarePolicy, simulated: "isobar+load-aware"},
	{Name: "isobar", About: "Isobar, with the cluster that it serves", simulated: sim.NameIsobar},
}

const roundRobin = `{policies: [{typed_extension_config: {name: round_robin, typed_config: {` +
	`"@type": type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin}}}]}`

// loadAwarePolicy is Envoy's load_aware_locality with its defaults.
const loadAwarePolicy = `load_balancing_policy: {policies: [{typed_extension_config: {name: load_aware_locality, typed_config: {` +
	`"@type": type.googleapis.com/envoy.extensions.load_balancing_policies.load_aware_locality.v3.LoadAwareLocality, ` +
	`endpoint_picking_policy: ` + roundRobin + `}}}]}`

func failover(f *fleet, source int) (string, error) {
	return f.cluster("lb_policy: ROUND_ROBIN", f.localities(source, distance, nil)), nil
}

func zoneAware(f *fleet, source int) (string, error) {
	return f.cluster("lb_policy: ROUND_ROBIN\n      common_lb_config: {zone_aware_lb_config: {min_cluster_size: 1}}", f.localities(source, byRegion, nil)), nil
}

func loadAware(region bool) func(*fleet, int) (string, error) {
	priority := together
	if region {
		priority = byRegion
	}
	return func(f *fleet, source int) (string, error) {
		return f.cluster(loadAwarePolicy, f.localities(source, priority, nil)), nil
	}
}

// weighted has the weights that the solver gives for what is known beforehand. None
// is 0, so that clients have somewhere to go when a zone is lost.
func weighted(f *fleet, source int) (string, error) {
	solution, err := solver.Solve(solver.Problem{Services: []solver.Service{f.problem()}})
	if err != nil {
		return "", err
	}
	flows, sum := solution.Services[0].Flows[source], 0.0
	for _, x := range flows {
		sum += x
	}
	weights := make([]int, len(flows))
	for z, x := range flows {
		weights[z] = max(1, int(math.Round(1000*x/sum)))
	}
	return f.cluster("lb_policy: ROUND_ROBIN\n      common_lb_config: {locality_weighted_lb_config: {}}", f.localities(source, together, weights)), nil
}

// problem is the mean of the measured time with the capacities before the event.
func (f *fleet) problem() solver.Service {
	s := solver.Service{}
	for from := range zones {
		s.Demand = append(s.Demand, f.scenario.mean(from, f.options.length))
		s.Localities = append(s.Localities, solver.Locality{
			Capacity: capacity, Servers: backendsPerZone * concurrency, Queues: backendsPerZone,
		})
		row := make([]float64, len(zones))
		for to := range zones {
			row[to] = milliseconds(latency(from, to))
		}
		s.Latency = append(s.Latency, row)
	}
	return s
}

// Priorities of a zone for a source.
func together(int, int) int { return 0 }

func byRegion(from, to int) int {
	if zones[from].Region == zones[to].Region {
		return 0
	}
	return 1
}

func distance(from, to int) int {
	if from == to {
		return 0
	}
	return 1 + byRegion(from, to)
}

// localities lists the endpoints for the clients of a source, by priority.
func (f *fleet) localities(source int, priority func(from, to int) int, weights []int) string {
	var b strings.Builder
	for p := range 3 {
		for z, zone := range zones {
			if priority(source, z) != p {
				continue
			}
			fmt.Fprintf(&b, "          - locality: {region: %s, zone: %s}\n            priority: %d\n", zone.Region, zone.Zone, p)
			if weights != nil {
				fmt.Fprintf(&b, "            load_balancing_weight: %d\n", weights[z])
			}
			b.WriteString("            lb_endpoints:\n")
			for _, backend := range f.backends[z] {
				b.WriteString(envoyloop.Endpoint(backend.Address()))
			}
		}
	}
	return b.String()
}

func (f *fleet) cluster(balancing, localities string) string {
	ejection := envoyloop.Ejection
	if !f.options.eject {
		ejection = "# without outlier detection"
	}
	return `    - name: ` + service + `
      type: STATIC
      connect_timeout: 1s
      ` + balancing + `
      circuit_breakers: {thresholds: [{max_connections: 100000, max_pending_requests: 100000, max_requests: 100000}]}
      ` + ejection + `
      load_assignment:
        cluster_name: ` + service + `
        endpoints:
` + localities
}

// bootstrap is the configuration of an Envoy without Isobar. Its own cluster,
// which zone-aware routing needs, has an Envoy in each zone.
func bootstrap(source int, id, cluster string) string {
	var own strings.Builder
	for _, zone := range zones {
		fmt.Fprintf(&own, "          - locality: {region: %s, zone: %s}\n            lb_endpoints:\n%s", zone.Region, zone.Zone, envoyloop.Endpoint("127.0.0.1:1"))
	}
	return fmt.Sprintf("node: {id: %s, cluster: client, locality: {region: %s, zone: %s}}\ncluster_manager: {local_cluster_name: client}\nstatic_resources:\n",
		id, zones[source].Region, zones[source].Zone) + envoyloop.Listener(route) + `  clusters:
    - name: client
      type: STATIC
      connect_timeout: 1s
      load_assignment:
        cluster_name: client
        endpoints:
` + own.String() + cluster
}

var route = "cluster: " + service + ", timeout: " + timeout.String()

// withLBPolicy lets another policy choose among the localities that Isobar assigns.
func withLBPolicy(bootstrap, balancing string) (string, error) {
	const own = "      lb_policy: ROUND_ROBIN\n      common_lb_config:\n        healthy_panic_threshold: {value: 10}\n        locality_weighted_lb_config: {}\n"
	if strings.Count(bootstrap, own) != 1 {
		return "", errors.New("bootstrap: want one cluster with lb_policy and locality_weighted_lb_config")
	}
	return strings.Replace(bootstrap, own, "      "+balancing+"\n", 1), nil
}

// configuration is Isobar's configuration file with the service.
func (f *fleet) configuration() string {
	var b strings.Builder
	b.WriteString("network:\n  latency_ms:\n")
	for from := range zones {
		for to := range from {
			fmt.Fprintf(&b, "    - {from: %s, to: %s, ms: %d}\n", zones[from], zones[to], latency(from, to).Milliseconds())
		}
	}
	fmt.Fprintf(&b, "services:\n  - name: %s\n    mode: full\n    request_timeout: %s\n    localities:\n", service, timeout)
	for z, zone := range zones {
		addresses := make([]string, 0, backendsPerZone)
		for _, backend := range f.backends[z] {
			addresses = append(addresses, `"`+backend.Address()+`"`)
		}
		fmt.Fprintf(&b, "      - {locality: %s, max_rate: %g, concurrency: %d, endpoints: [%s]}\n",
			zone, f.scenario.declared(z), backendsPerZone*concurrency, strings.Join(addresses, ", "))
	}
	return b.String()
}

// seconds is for messages.
func seconds(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }
